"""LANTERN on Jacobi guesses: borrows as LANTERN does, replaces as speculative Jacobi decoding does."""

import json
from pathlib import Path

import pytest
import torch
from conftest import assert_same_law, gap
from jacobi_laws import assert_greedy, output_law, target_law
from rule_laws import dirichlet, first_token_law, law_by_sums, node, shares

from pipelines import SJDLanternPipeline
from pipelines.decoding.jacobi_drafter import JacobiDrafter
from pipelines.decoding.verify import Walk
from pipelines.models.codebook import neighbours
from pipelines.pipeline_lantern import LanternRule
from pipelines.pipeline_sjd_lantern import borrow_rule
from tests import tiny


CASES = json.loads((Path(__file__).parent / "vectors" / "jacobi.json").read_text())["vectors"]
NEAREST = torch.tensor([[1, 2], [0, 2], [1, 0]])
close = pytest.approx


def rows(values: list) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def drafter(session):
    return JacobiDrafter(session.layout, 3, "copy_left")


@pytest.mark.parametrize("case", [case for case in CASES if case["kind"] == "lantern"], ids=lambda case: case["name"])
def test_worked_cases(case):
    p, q, x = rows(case["p"]), rows(case["q"]), case["draft"]
    nearest = torch.tensor([case["neighbours_by_distance"]] * len(p))
    rule = LanternRule(nearest, case["k"], case["delta"], "gstar")
    assert len(rule.lenders(p, x)) == case["expect"]["n_added"]
    assert float(p[x] + p[rule.lenders(p, x)].sum()) == close(case["expect"]["p_relaxed"], abs=1e-8)
    assert rule.accept(p, q, x, node()) == close(case["expect"]["accept"], abs=1e-8)


@pytest.mark.parametrize("delta", [0.1, 0.4])
def test_one_round_has_the_law_of_the_closed_form(delta):
    nearest = neighbours(torch.randn(6, 2, generator=torch.Generator().manual_seed(3)), 5)
    lent = 0.0
    for seed in range(5):
        p, q = dirichlet(seed, 6), dirichlet(50 + seed, 6)
        f = []
        for x in range(6):
            borrowed, run = 0.0, nearest[x, :3].tolist()
            while run and borrowed + float(p[run[0]]) <= delta:
                borrowed += float(p[run.pop(0)])
            lent += borrowed
            f.append(min(1.0, (float(p[x]) + borrowed) / float(q[x])))
        replaced = shares((p - q).tolist(), p.tolist())
        found = first_token_law(LanternRule(nearest, 3, delta, "gstar"), p, q)
        torch.testing.assert_close(found, law_by_sums(f, [replaced] * 6, q), atol=1e-12, rtol=0)
    assert lent > 0.5, "nothing was borrowed"


def test_no_budget_is_lossless_and_a_budget_is_not():
    def borrowing(delta: float) -> dict:
        return output_law(drafter, lambda: Walk(LanternRule(NEAREST, 2, delta, "gstar")))

    assert_same_law(borrowing(0.0), target_law())
    assert gap(borrowing(0.45), target_law()) > 0.01


def test_temperature_0_is_greedy_autoregression():
    assert_greedy(drafter, lambda: LanternRule(NEAREST, 2, 0.1, "gstar"))


def test_the_pipeline_borrows_from_its_own_codes():
    pipe = SJDLanternPipeline(**tiny.components())
    rule = borrow_rule(pipe, pipe.settings.revise({"neighbours": 5, "delta": 0.3}, ""))
    assert torch.equal(rule.nearest[:, :5], neighbours(pipe.model.codebook(), 5))
    assert (rule.count, rule.bound, rule.residual_kind) == (5, 0.3, "gstar")
    assert borrow_rule(pipe, pipe.settings.revise({"neighbours": 1000}, "")).nearest.shape[1] == tiny.VOCAB - 1
