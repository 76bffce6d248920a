"""GSD: who is in a group, what a group is kept with, and the law that one round then has."""

import json
from pathlib import Path

import pytest
import torch
from jacobi_laws import assert_greedy
from rule_laws import dirichlet, first_token_law, law_by_sums, node, shares

from pipelines import GSDPipeline, SJDPipeline
from pipelines.decoding.jacobi_drafter import JacobiDrafter
from pipelines.decoding.rules import ExactRule
from pipelines.pipeline_gsd import GroupRule, GroupSettings
from pipelines.primitives.distributions import total_variation
from tests import tiny
from tests.tiny import refusal


CASES = json.loads((Path(__file__).parent / "vectors" / "jacobi.json").read_text())["vectors"]
ALL = torch.ones(6, 6, dtype=torch.bool)
PAIRS = [(dirichlet(seed, 6), dirichlet(50 + seed, 6)) for seed in range(6)]
close = pytest.approx


def rows(values: list) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("case", [case for case in CASES if case["kind"] == "gsd"], ids=lambda case: case["name"])
def test_worked_cases(case):
    p, q, x, expect = rows(case["p"]), rows(case["q"]), case["draft"], case["expect"]
    rule = GroupRule(ALL, case["half"], p_gap=1.0)
    group = rule.group(p, x)
    assert group.tolist() == expect["group"]
    assert (float(p[group].sum()), float(q[group].sum())) == close((expect["p_group"], expect["q_group"]), abs=1e-8)
    assert rule.accept(p, q, x, node()) == close(expect["accept"], abs=1e-8)
    assert ExactRule().accept(p, q, x, node()) == close(expect["accept_plain_sjd"], abs=1e-8)


def members(p: list[float], x: int, half: int, p_gap: float, alike: torch.Tensor) -> list[int]:
    """By the words of the paper."""
    order = sorted(range(len(p)), key=lambda token: (p[token], token))
    rank = order.index(x)
    near = [order[at] for at in range(rank - half, rank + half) if 0 <= at < len(p)]
    return [y for y in near if alike[x, y] and abs(p[y] - p[x]) <= p_gap]


@pytest.mark.parametrize("residual", ["token", "gstar"])
@pytest.mark.parametrize(("half", "p_gap"), [(1, 1.0), (2, 0.2), (5, 1.0), (25, 0.1)])
def test_one_round_has_the_law_of_the_closed_form(half, p_gap, residual):
    alike = torch.rand(6, 6, generator=torch.Generator().manual_seed(1)) < 0.7
    alike = (alike | alike.T).fill_diagonal_(True)
    shared = 0
    for p, q in PAIRS:
        groups = [members(p.tolist(), x, half, p_gap, alike) for x in range(6)]
        shared += sum(len(group) > 1 for group in groups)
        f = [min(1.0, float(p[group].sum() / q[group].sum())) for group in groups]
        left = p - q if residual == "token" else p - q * rows(f)
        rule = GroupRule(alike, half, p_gap, residual)
        assert (rule.kept(p, q, node()) / q).tolist() == close(f, abs=1e-12)
        expected = law_by_sums(f, [shares(left.tolist(), p.tolist())] * 6, q)
        torch.testing.assert_close(first_token_law(rule, p, q), expected, atol=1e-12, rtol=0)
    assert shared, "no token shares its group"


def test_no_residual_ends_nearer_to_the_target_than_gstar():
    off = {kind: [] for kind in ("token", "gstar")}
    for p, q in PAIRS:
        for kind, found in off.items():
            found.append(float(total_variation(first_token_law(GroupRule(ALL, 2, 1.0, kind), p, q), p)))
    assert all(one <= other + 1e-12 for one, other in zip(off["gstar"], off["token"]))
    excess = [float((GroupRule(ALL, 2, 1.0).kept(p, q, node()) - p).clamp(min=0).sum()) for p, q in PAIRS]
    assert off["gstar"] == close(excess, abs=1e-12) and max(excess) > 0.01, "nothing is lost"


@pytest.mark.parametrize("rule", [GroupRule(ALL, 2, 0.0), GroupRule(torch.eye(6, dtype=torch.bool), 2, 1.0)])
def test_groups_of_one_are_the_exact_rule(rule):
    for p, q in PAIRS:
        for x in range(6):
            assert rule.accept(p, q, x, node()) == ExactRule().accept(p, q, x, node())
            assert rule.residual(p, q, x, node()).tolist() == close(ExactRule().residual(p, q, x, node()).tolist())


def test_a_token_without_draft_probability_costs_nothing():
    p, q = rows([0.5, 0.3, 0.2]), rows([1.0, 0.0, 0.0])
    kept = GroupRule(torch.ones(3, 3, dtype=torch.bool), 1, 1.0).kept(p, q, node())
    assert kept.tolist() == close([0.8, 0, 0])


def test_temperature_0_is_greedy_autoregression():
    alike = torch.ones(3, 3, dtype=torch.bool)
    assert_greedy(lambda session: JacobiDrafter(session.layout, 3, "uniform"), lambda: GroupRule(alike, 1, 0.15))


def test_the_pipeline_groups_by_its_own_embeddings():
    pipe = GSDPipeline(**tiny.components())
    embedding = pipe.model.token_embedding().double()
    distance = (embedding[:, None] - embedding[None]).square().sum(-1)
    gap = float(distance.median())
    rules = [
        pipe.method(pipe.settings.revise({"embed_gap": wide, "group": 4}, ""), opened(pipe))[1] for wide in (gap, 0)
    ]
    near = (distance - gap).abs() > 1e-3
    assert ((distance <= gap) == rules[0].alike)[near].all() and rules[0].half == 2
    assert torch.equal(rules[1].alike, torch.eye(len(embedding), dtype=torch.bool))


def opened(pipe):
    return pipe.model.open(pipe.encode_prompt("a panda"), 1.0, None, pipe.layout())


def test_wide_groups_keep_more_and_say_what_they_cost():
    parts = tiny.components(grid_size=8)
    wide = {"group": 50, "p_gap": 1.0, "embed_gap": 100.0}
    traces = []
    for kind, settings in ((SJDPipeline, {}), (GSDPipeline, wide)):
        pipe = kind(**parts)
        pipe.set_progress_bar_config(disable=True)
        generator = torch.Generator().manual_seed(3)
        traces.append(pipe("a panda on snow", generator=generator, output_type="latent", **settings).traces[0])
    assert traces[1].nfe < traces[0].nfe
    assert sum(step.notes["infidelity"].sum() for step in traces[1].steps) > 0.1
    assert "infidelity" not in traces[0].steps[1].notes


def test_an_odd_group_is_refused():
    assert refusal(GroupSettings, group=3) == "`group` must be an even whole number from 2 to 50, got 3."
