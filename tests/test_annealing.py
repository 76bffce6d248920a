"""The annealing benchmark computes what the real rules do: its laws, bounds and counts, every branch walked."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Table, TableSession, branches, laws_only
from test_laws import PLAIN

from benchmarks.annealing import SCHEDULES, block, flat_at, laws, nearness, process, row, table, tables
from pipelines.decoding.eagle_drafter import StaticDrafter
from pipelines.decoding.loop import decode
from pipelines.decoding.verify import Walk, walk
from pipelines.pipeline_cool_sd import CoolSDRule
from pipelines.primitives.chance import Chance
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import chain, path_down


CASES = json.loads((Path(__file__).parent / "vectors" / "drafter.json").read_text())
close = pytest.approx
FACTORS = SCHEDULES["falling, clamped"](2.0)


def independent(law: list[float], length: int) -> list[np.ndarray]:
    """The same law whatever came before."""
    return [np.broadcast_to(np.array(law), (len(law),) * depth + (len(law),)) for depth in range(length)]


@pytest.mark.parametrize("case", CASES["coolsd_bound_iid"])
def test_the_bound_of_independent_positions(case):
    found = block(independent(case["p"], case["L"]), independent(case["q"], case["L"]), case["omega"])
    assert found.accepted == close(case["expected_accepted"], abs=1e-9)
    assert found.bound == close(case["bound_direct"], abs=1e-9) == close(case["bound_closed_form"], abs=1e-9)


@pytest.mark.parametrize("case", CASES["coolsd_chain"])
def test_the_bound_of_a_chain(case):
    p, q = case["p_rows"], case["q_rows"]
    spread = [[independent(law, depth + 1)[depth] for depth, law in enumerate(rows)] for rows in (p[:-1], q)]
    found = block(*spread, case["omega"])
    assert found.accepted == close(case["expected_accepted"], abs=1e-9)
    assert found.bound == close(case["tv_upper_bound"], abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_a_block_is_as_far_off_as_the_real_rule_leaves_it(seed):
    p, q = tables(np.random.default_rng(seed), 0.6)

    def run(chance: Chance) -> tuple[int, ...]:
        guesses = []
        for draft in q:
            guesses.append(int(chance.categorical(torch.from_numpy(draft[tuple(guesses)])[None])))
        rows = torch.from_numpy(np.stack([law[tuple(guesses[:depth])] for depth, law in enumerate(p)] + [p[0]]))
        drafted = torch.from_numpy(np.stack([law[tuple(guesses[:depth])] for depth, law in enumerate(q)]))
        verdict = walk(CoolSDRule(FACTORS), chain(guesses, drafted), laws_only(rows), chance, 0.0)
        tokens = [*(guesses[node] for node in verdict.path), verdict.token][: len(p)]
        while len(tokens) < len(p):
            tokens.append(int(chance.categorical(torch.from_numpy(p[len(tokens)][tuple(tokens)])[None])))
        return tuple(tokens)

    true = p[0][:, None, None] * p[1][:, :, None] * p[2]
    found = np.zeros_like(true)
    for tokens, weight in branches(run):
        found[tokens] += weight
    assert block(p, q, FACTORS).distance == close(np.abs(found - true).sum() / 2, abs=1e-12)


class MarkovSession(TableSession):
    """A target that knows the last token only."""

    p: torch.Tensor

    def laws(self, context):
        law = self.layout.force(self.p[context[-1] if context else 0], len(context))
        return law, law


class MarkovGuesser:
    def __init__(self, q: torch.Tensor) -> None:
        self.q = q

    def extend(self, tokens, features):
        return self.q[tokens[-1:]]

    def step(self, tokens, parents, depth):
        return self.q[tokens]


def test_a_process_has_the_law_and_the_passes_of_real_runs():
    rng = np.random.default_rng(5)
    p, q = laws(rng, 3), laws(rng, 3)
    layout, target, factors = Layout(1, 4, {0: 0}), Table(seed=0, vocabulary=3, length=5), FACTORS[:2]

    def run(chance: Chance) -> tuple[tuple[int, ...], int]:
        session = MarkovSession(target, PLAIN, 1.0, layout)
        session.p = torch.from_numpy(p)
        drafter = StaticDrafter(MarkovGuesser(torch.from_numpy(q)), session, path_down(2))
        steps = list(decode(session, drafter, Walk(CoolSDRule(factors)), chance, layout.length))
        return tuple(token for step in steps for token in step.committed.tolist())[1:], len(steps) - 1

    found, passes = np.zeros([3] * 4), 0.0
    for (tokens, count), weight in branches(run):
        found[tokens] += weight
        passes += weight * count
    exact = process(p, q, factors, tokens=4)
    assert exact.passes == close(passes, abs=1e-12) and np.abs(exact.law - found).max() < 1e-12
    assert process(p, q, [1.0, 1.0], tokens=4).distance == close(0, abs=1e-12)


def test_no_block_is_further_off_than_its_bound():
    found = nearness(models=100, seed=3)
    print(found)
    for least, mean, most in found.values():
        assert 0.3 < least <= mean <= most <= 1 + 1e-9


def test_decreasing_beats_uniform_beats_increasing_in_the_bound():
    rng, ratios = np.random.default_rng(0), {"falling, clamped": [], "rising, clamped": []}
    for p, q in [tables(rng, 0.3) for _ in range(10)]:
        for name, found in ratios.items():
            own = block(p, q, SCHEDULES[name](2.0))
            omega = flat_at(lambda omega, p=p, q=q: block(p, q, [omega] * 3).accepted, own.accepted)
            assert block(p, q, [omega] * 3).accepted == close(own.accepted, abs=1e-6)
            found.append(own.bound / block(p, q, [omega] * 3).bound)
    assert max(ratios["falling, clamped"]) < 1 < min(ratios["rising, clamped"])


def test_the_table_has_a_line_a_schedule():
    rows = [row(question, "close", 2.0, "falling", [(1.0, 2.0), (4.0, 2.0)]) for question in ("bound", "TV")]
    assert table(rows, {"close": [0.5, 0.6, 0.7]}).splitlines() == [
        "| draft | δ | schedule | bound | TV |",
        "|---|---|---|---|---|",
        "| close | 2 | falling | 1.25 (1/2) | 1.25 (1/2) |",
        "",
        "TV/B of the clamped falling schedule at δ = 2, least, mean, largest: close 0.50, 0.60, 0.70.",
    ]
