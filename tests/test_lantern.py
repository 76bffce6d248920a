"""LANTERN: who may borrow how much, what replaces a refused guess in each of three ways, and laws."""

import json
from pathlib import Path

import pytest
import torch
from conftest import assert_same_law, gap
from rule_laws import dirichlet, first_token_law, law_by_sums, node, shares
from test_laws import LOSSLESS

from pipelines.models.codebook import neighbours
from pipelines.pipeline_lantern import LanternRule
from pipelines.pipeline_lantern_plus_plus import LanternPlusPlusRule
from pipelines.primitives.distributions import one_hot, total_variation


VECTORS = json.loads((Path(__file__).parent / "vectors" / "drafter.json").read_text())
CASES = VECTORS["lantern"] + VECTORS["lantern_pp"]
RULES = {"additive": LanternRule, "multiplicative": LanternPlusPlusRule}
WEIGHING = [(LanternRule, 0.3), (LanternPlusPlusRule, 2.5)]
close = pytest.approx
TOLERANCE = 1e-9
NEAREST = neighbours(torch.randn(6, 2, generator=torch.Generator().manual_seed(3)), 5)
PAIRS = [(dirichlet(seed, 6), dirichlet(50 + seed, 6)) for seed in range(6)]


def rows(values: list) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def made(case: dict, kind: str) -> LanternRule:
    return RULES[case["bound_mode"]](torch.tensor(case["neighbours"]), case["k"], case["bound"], kind)


@pytest.mark.parametrize("case", CASES)
def test_worked_cases(case):
    p, q, x = rows(case["p"]), rows(case["q"]), case["draft"]
    at = node(law=p)
    paper = made(case, "paper")
    assert paper.lenders(p, x).tolist() == case["A_without_self"]
    assert paper.accept(p, q, x, at) == close(case["accept_prob_q"], abs=TOLERANCE)
    assert paper.residual(p, q, x, at).tolist() == close(case["residual_paper"], abs=TOLERANCE)
    assert made(case, "gstar").residual(p, q, x, at).tolist() == close(case["residual_Gstar"], abs=TOLERANCE)
    released = made(case, "released").residual(p, q, x, at)
    assert released.tolist() == close(case["residual_repo_llamagen_static"], abs=TOLERANCE)
    certain = one_hot([x], p)[0]
    assert paper.chance(p, certain, x, at) == close(case["accept_prob_onehot"], abs=TOLERANCE)
    assert paper.residual(p, certain, x, at).tolist() == close(case["residual_paper_onehot"], abs=TOLERANCE)
    assert (paper.kept(p, q, at) / q).tolist() == close(case["f_all_tokens"], abs=TOLERANCE)
    notes = paper.explain()
    assert notes["excess"] == close([case["tv_lower_bound_E"]], abs=TOLERANCE)
    assert notes["masses"][0].tolist() == close(p[paper.nearest[0, : paper.count]].cumsum(0).tolist(), rel=1e-3)


def borrowed(p: list[float], x: int, count: int, budget: float) -> list[int]:
    """By the words of the paper: the longest run of nearest codes within the budget."""
    run = []
    for code in NEAREST[x, :count].tolist():
        if sum(p[other] for other in [*run, code]) > budget:
            break
        run.append(code)
    return run


@pytest.mark.parametrize(("kind", "bound"), WEIGHING)
@pytest.mark.parametrize("residual", ["paper", "gstar"])
def test_one_round_has_the_law_of_the_closed_form(kind, bound, residual):
    lent = 0
    for p, q in PAIRS:
        laws, f, replaced = p.tolist(), [], []
        for x, (p_x, q_x) in enumerate(zip(laws, q.tolist())):
            run = borrowed(laws, x, 3, bound if kind is LanternRule else (bound - 1) * p_x)
            lent += len(run)
            moved = [0.0 if y in run else mass for y, mass in enumerate(laws)]
            moved[x] += sum(laws[y] for y in run)
            f.append(min(1.0, moved[x] / q_x))
            left = moved if residual == "paper" else laws
            replaced.append(shares([a - b for a, b in zip(left, q.tolist())], laws))
        found = first_token_law(kind(NEAREST, 3, bound, residual), p, q)
        torch.testing.assert_close(found, law_by_sums(f, replaced, q), atol=1e-12, rtol=0)
        assert found.sum() == close(1.0)
    assert lent > 5, "nothing was borrowed"


@pytest.mark.parametrize(("kind", "bound"), WEIGHING)
def test_no_residual_ends_nearer_than_gstar(kind, bound):
    """The released one is further off somewhere; claim 5."""
    released_is_worse = []
    for p, q in PAIRS:
        off = {
            name: float(total_variation(first_token_law(kind(NEAREST, 3, bound, name), p, q), p))
            for name in ("paper", "gstar", "released")
        }
        rule = kind(NEAREST, 3, bound)
        assert off["gstar"] == close(float((rule.kept(p, q, node()) - p).clamp(min=0).sum()), abs=1e-12)
        assert off["gstar"] <= min(off.values()) + 1e-12
        released_is_worse.append(off["released"] - off["gstar"])
    assert max(released_is_worse) > 1e-3


def test_the_released_rule_takes_one_neighbour_more_out_of_certain_guesses():
    p = rows([0.3, 0.05, 0.1, 0.2, 0.15, 0.2])
    rule = LanternRule(NEAREST, 2, 0.26, "released")
    x = next(x for x in range(6) if len(rule.lenders(p, x)))
    gone = {x, *NEAREST[x, :3].tolist()}
    expected = shares([0.0 if y in gone else mass for y, mass in enumerate(p.tolist())], p.tolist())
    assert rule.residual(p, one_hot([x], p)[0], x, node()).tolist() == close(expected)
    strict = LanternRule(NEAREST, 2, 0.0, "released")
    expected = shares([0.0 if y == x else mass for y, mass in enumerate(p.tolist())], p.tolist())
    assert strict.residual(p, one_hot([x], p)[0], x, node()).tolist() == close(expected)


@pytest.mark.parametrize("seed", range(4))
def test_certain_guesses_move_at_most_the_budget(seed):
    p, bound = dirichlet(seed, 6), 0.3
    law = first_token_law(LanternRule(NEAREST, 3, bound), p, one_hot([int(p.argmax())], p)[0])
    assert 0 <= float(total_variation(law, p)) <= bound + 1e-12


@pytest.mark.parametrize("residual", ["paper", "gstar", "released"])
@pytest.mark.parametrize(("kind", "neutral"), [(LanternRule, 0.0), (LanternPlusPlusRule, 1.0)])
@pytest.mark.parametrize("name", ["chain", "tree of one-hot children"])
def test_no_budget_is_lossless(kind, neutral, residual, name):
    case = LOSSLESS[name]
    found = case.law(lambda: kind(torch.tensor([[1, 2], [0, 2], [0, 1]]), 2, neutral, residual))
    assert_same_law(found, case.open().joint())


def test_a_budget_is_not():
    case = LOSSLESS["chain"]
    nearest = torch.tensor([[1, 2], [0, 2], [0, 1]])
    assert gap(case.law(lambda: LanternRule(nearest, 1, 0.4)), case.open().joint()) > 0.01
    assert gap(case.law(lambda: LanternPlusPlusRule(nearest, 1, 3.0)), case.open().joint()) > 0.01
