"""SJD-VP: growth by worked cases, the law of its guesses, which of its modes are lossless, and what a run tells."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import assert_same_law, gap, law, laws_only
from jacobi_laws import assert_greedy, output_law, target_law
from rule_laws import first_token

from pipelines import ARPipeline, SJDPipeline, SJDVPPipeline
from pipelines.decoding.coupling import afresh, maximal
from pipelines.decoding.growth import FUSIONS, Q_MODES, TINY, Growth, GrowthDrafter, RawGrowthDrafter
from pipelines.decoding.history import PASSES
from pipelines.decoding.rules import ExactRule
from pipelines.decoding.verify import Walk
from pipelines.pipeline_gsd import GroupRule
from pipelines.pipeline_lantern import LanternRule
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp, total_variation
from pipelines.primitives.trace import load
from pipelines.primitives.tree import chain
from tests import tiny


CASES = json.loads((Path(__file__).parent / "vectors" / "jacobi.json").read_text())["vectors"]
STRONG = {"steps": 1, "gain": 3.0, "decay": 0.5, "top_k": 0, "fusion": "bayes"}
close = pytest.approx


def rows(values: list) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def redrafted(growth: Growth, history: list, p: list) -> torch.Tensor:
    """p' of one position. history: oldest first."""
    for past in history:
        growth(laws_only(rows([past])), 5, 0)
    return growth(laws_only(rows([p])), 5, 0)[0]


@pytest.mark.parametrize("case", [case for case in CASES if case["kind"] == "fuse"], ids=lambda case: case["name"])
def test_worked_cases(case):
    growth, expect = Growth(case["N"], case["kappa"], case["decay"], case["top_k"], "bayes"), case["expect"]
    p, past = rows(case["p"]), rows(case["history_oldest_first"][::-1])
    gain = growth.measure(p, list(past))
    assert gain.score.tolist() == close(expect["S"], abs=1e-8)
    assert (gain.grew & growth.may_grow(p[None], growth.bar(p[None]))[0]).int().tolist() == expect["M"]
    found = redrafted(growth, case["history_oldest_first"], case["p"])
    assert found.tolist() == close(expect["p_fused"], abs=1e-8)
    assert int(found.argmax()) == expect["argmax"]


@pytest.mark.parametrize("case", [case for case in CASES if case["kind"] == "law"], ids=lambda case: case["name"])
def test_the_law_of_one_position(case):
    """A guess of p' judged with p' as q, and judged as if from p."""
    expect, target, past = case["expect"], rows(case["target_next"]), rows(case["p_at_draft_time"])
    growth = Growth(case["N"], 1.0, case["decay"], case["top_k"], "bayes")
    fused = redrafted(growth, case["history_newest_first"][::-1], case["p_at_draft_time"])
    assert fused.tolist() == close(expect["p_fused"], abs=1e-8)
    assert 1 - float(total_variation(target, fused)) == close(expect["accept_option_a"], abs=1e-8)
    for drawn, q, told in ((past, past, "law_sjd"), (fused, fused, "law_option_a"), (fused, past, "law_option_b")):

        def run(chance: Chance, drawn=drawn, q=q) -> tuple[int, ...]:
            guess = int(chance.categorical(drawn[None]))
            return (first_token(ExactRule(), target, chain([guess], q[None]), chance),)

        found = law(run)
        assert [found[(token,)] for token in range(4)] == close(expect[told], abs=1e-8)


def test_growth_is_read_off_the_laws_before_top_k():
    """A token that comes back into the top-k has been there all along."""
    growth = Growth(**STRONG)
    first, second = rows([[0.5, 0.3, 0.2]]), rows([[0.35, 0.25, 0.4]])
    kept = Warp(top_k=2)
    growth(replace(laws_only(first), probs=kept.filter(first)), 5, 0)
    found = growth(replace(laws_only(second), probs=kept.filter(second)), 5, 0)[0]
    p = [0.35 / 0.75, 0, 0.4 / 0.75 * ((0.4 + TINY) / (0.2 + TINY)) ** 3]
    assert found.tolist() == close([mass / sum(p) for mass in p])


def test_only_the_likeliest_may_gain_and_growth_alone_may_rule():
    history, p = [[0.4, 0.4, 0.2]], [0.3, 0.45, 0.25]
    both = redrafted(Growth(**STRONG), history, p)
    ratio = [1.0, (0.45 / 0.4) ** 3, (0.25 / 0.2) ** 3]
    masses = [mass * gain for mass, gain in zip(p, ratio)]
    assert both.tolist() == close([mass / sum(masses) for mass in masses])
    one = redrafted(Growth(**STRONG | {"top_k": 1}), history, p)
    assert one.tolist() == close([0.3 / (0.55 + 0.45 * ratio[1]), *one[1:].tolist()])
    assert float(one[2] / one[0]) == close(0.25 / 0.3), "a token beyond the top-k gained"
    alone = redrafted(Growth(**STRONG | {"fusion": "score", "top_k": 2}), history, p)
    assert alone.tolist() == close([1 / (1 + ratio[1]), ratio[1] / (1 + ratio[1]), 0])
    assert redrafted(Growth(**STRONG | {"fusion": "none"}), history, p).tolist() == close(p)
    assert redrafted(Growth(**STRONG | {"gain": 0.0}), history, p).tolist() == close(p)


def test_a_position_keeps_its_past_while_the_window_moves_on():
    """The same as by hand, position by position, whatever the number of tokens that became final."""
    dice = torch.Generator().manual_seed(0)
    growth, past, first = Growth(2, 1.0, 0.5, 0, "bayes"), {}, 0
    for rows_now, kept in ((1, 1), (4, 1), (4, 2), (4, 1), (5, 1), (3, 3), (4, 1)):
        laws = torch.rand(rows_now, 6, generator=dice, dtype=torch.float64).softmax(-1)
        found = growth(laws_only(laws), first, kept)
        expected = []
        for position in range(first + kept, first + rows_now):
            p, before = laws[position - first], past.get(position, [])[-2:]
            if len(before) < 2:
                expected.append(p)
                continue
            mean = (before[1] + 0.5 * before[0]) / 1.5
            grew = (p > before[1]) & (before[1] > before[0])
            masses = p * torch.where(grew, (p + TINY) / (mean + TINY), 1)
            expected.append(masses / masses.sum())
        torch.testing.assert_close(found, torch.stack(expected) if expected else found[:0])
        for row, p in enumerate(laws):
            past.setdefault(first + row, []).append(p)
        first += kept
    assert sum(len(laws) >= 3 for laws in past.values()) > 1, "no position has a past"


def vp(kind=GrowthDrafter, couple=afresh, **changed):
    growth = Growth(**STRONG | changed)
    return lambda session: kind(session.layout, 3, "copy_left", replace(growth), couple)


@pytest.mark.parametrize("couple", [afresh, maximal])
def test_fused_guesses_leave_the_law_alone(couple):
    changed, drafters = [], []

    def remembered(session):
        drafters[:] = [vp(couple=couple)(session)]
        return drafters[0]

    def watch(draft, judged):
        raw = drafters[0].growth.target
        changed.extend(node for node in judged if node < len(raw) and (draft.q[node] - raw[node]).abs().max() > 0.01)

    assert_same_law(output_law(remembered, watch=watch), target_law())
    assert changed, "no guess that was judged had been drawn from a changed law: nothing is proven"


class FusedTarget(Walk):
    """Broken: what the guesses are judged against leans towards growth too."""

    def __init__(self) -> None:
        super().__init__(ExactRule())
        self.growth, self.final = Growth(**STRONG), 0

    def __call__(self, draft, scores, chance):
        verdict = super().__call__(draft, replace(scores, probs=self.growth(scores, self.final, 0)), chance)
        self.final += len(verdict.path) + 1
        return verdict


def test_guesses_judged_as_if_from_the_raw_law_are_seen():
    assert gap(output_law(vp(RawGrowthDrafter)), target_law()) > 1e-3


def test_a_target_that_leans_towards_growth_too_is_seen():
    assert gap(output_law(vp(), FusedTarget), target_law()) > 1e-3


ALIKE = torch.ones(3, 3, dtype=torch.bool)
NEAREST = torch.tensor([[1, 2], [0, 2], [1, 0]])


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("kind", [GrowthDrafter, RawGrowthDrafter])
def test_temperature_0_is_greedy_autoregression(kind, fusion):
    assert_greedy(vp(kind, fusion=fusion))


@pytest.mark.parametrize("rule", [GroupRule(ALIKE, 1, 0.15), LanternRule(NEAREST, 2, 0.1, "gstar")])
def test_temperature_0_is_greedy_under_the_other_bases(rule):
    assert_greedy(vp(), lambda: rule)


@pytest.fixture(scope="module")
def parts():
    return tiny.components(grid_size=8)


def drawn(parts, kind=SJDVPPipeline, **settings):
    pipe = kind(**parts)
    pipe.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(3)
    return pipe("a panda on snow", generator=generator, output_type="latent", **settings).traces[0]


def test_without_growth_it_is_its_base(parts):
    plain = drawn(parts, SJDPipeline)
    for settings in ({"fusion": "none"}, {"gain": 0.0}, {"fusion": "none", "q_mode": "raw"}):
        assert drawn(parts, **settings).tokens.tolist() == plain.tokens.tolist(), settings
    assert drawn(parts, growth_steps=1, gain=3.0).tokens.tolist() != plain.tokens.tolist()


def test_each_base_brings_its_rule(parts):
    pipe = SJDVPPipeline(**parts)
    session = pipe.model.open(pipe.encode_prompt("a panda"), 1.0, Warp(), pipe.layout())
    for base, rule in {"sjd": ExactRule, "gsd": GroupRule, "lantern": LanternRule}.items():
        assert type(pipe.method(pipe.settings.revise({"base": base}, ""), session)[1]) is rule
    for mode, drafter in zip(Q_MODES, (GrowthDrafter, RawGrowthDrafter)):
        assert type(pipe.method(pipe.settings.revise({"q_mode": mode}, ""), session)[0]) is drafter


@pytest.mark.parametrize(
    "settings",
    [
        {"growth_steps": 1, "gain": 3.0},
        {"growth_steps": 2, "growth_top_k": 6, "top_k": 12, "decay": 0.9},
        {"growth_steps": 1, "fusion": "score", "growth_top_k": 9, "window": 6},
        {"growth_steps": 1, "q_mode": "raw", "coupling": "gumbel", "base": "lantern"},
    ],
)
def test_growth_worked_out_again_from_a_saved_run_is_what_was_used(parts, settings, tmp_path):
    drawn(parts, **settings).save(tmp_path / "run.npz")
    run = load(tmp_path / "run.npz")
    knobs = run.header.settings
    gained = used = 0
    for step in run.steps:
        notes = step.notes
        probs, p, total = notes["past_probs"], notes["growth_p"], notes["growth_total"][..., None]
        assert probs.shape == p.shape == notes["growth_fused"].shape and probs.shape[1] < PASSES
        for turn in range(probs.shape[1]):
            past = [probs[:, turn - age] for age in range(1, knobs["growth_steps"] + 1) if turn >= age]
            s, m = replayed(probs[:, turn], past, knobs)
            m &= (p[:, turn] > 0) & (p[:, turn] >= np.nan_to_num(notes["growth_bar"][:, turn, None]))
            seen = ~np.isnan(probs[:, turn])
            np.testing.assert_allclose(notes["growth_s"][:, turn][seen], s[seen], rtol=1e-4, atol=1e-5)
            assert (notes["growth_m"][:, turn] == m)[seen].all()
            inside = (p[:, turn] > 0) & (p[:, turn] >= notes["growth_bar"][:, turn, None])
            masses = inside if knobs["fusion"] == "score" else p[:, turn]
            fused = masses * np.exp(np.where(m, np.nan_to_num(s), 0)) / total[:, turn]
            drawn_from = ~np.isnan(notes["growth_fused"][:, turn])
            np.testing.assert_allclose(
                notes["growth_fused"][:, turn][drawn_from], fused[drawn_from], rtol=1e-4, atol=1e-7
            )
            gained += int(m[drawn_from].sum())
            used += int(drawn_from.sum())
        if knobs["q_mode"] == "fused" and step.index:
            check_what_was_judged(run, step)
    assert used > 100 and gained > 3, "nothing grew"


def replayed(now: np.ndarray, past: list[np.ndarray], knobs: dict) -> tuple[np.ndarray, np.ndarray]:
    """S and M by the words of the paper; no S where the past is shorter than N."""
    if len(past) < knobs["growth_steps"]:
        return np.full(now.shape, np.nan), np.zeros(now.shape, bool)
    grew = np.all([late > early for late, early in zip([now, *past], past)], 0)
    weights = [knobs["decay"] ** age for age in range(len(past))]
    mean = sum(weight * early for weight, early in zip(weights, past)) / sum(weights)
    return knobs["gain"] * np.log((now + TINY) / (mean + TINY)), grew


def check_what_was_judged(run, step) -> None:
    """The q of each guess that was kept or refused is the p' that is told of the pass before."""
    for square in range(len(step.committed)):
        guess = step.notes["past_guesses"][square, -1]
        told = step.notes["growth_fused"][square, -2] if step.notes["growth_fused"].shape[1] > 1 else [np.nan]
        if guess < 0 or np.isnan(told).all():
            continue
        at = step.notes["past_tokens"][square].tolist().index(guess)
        assert told[at] == step.q[square], "another law was judged than the one told"


def test_growth_costs_no_forward_and_ar_tells_nothing(parts):
    run = drawn(parts)
    assert run.complete and all(step.draft_calls == 0 for step in run.steps)
    assert not drawn(parts, ARPipeline).steps[3].notes
