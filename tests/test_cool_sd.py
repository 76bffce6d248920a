"""COOL-SD: the schedule, worked cases of chains and trees, and laws: exact at 1, never further off than the bound."""

import json
from pathlib import Path

import pytest
import torch
from conftest import GivenDice, assert_same_law, gap, laws_only
from rule_laws import first_token_law, siblings_law
from test_laws import LOSSLESS

from pipelines.decoding.verify import walk
from pipelines.pipeline_cool_sd import CoolSDRule, omegas
from pipelines.pipeline_uniform_rsd import UniformRSDRule
from pipelines.primitives.distributions import total_variation
from pipelines.primitives.tree import Draft, chain


CASES = json.loads((Path(__file__).parent / "vectors" / "drafter.json").read_text())
close = pytest.approx
TOLERANCE = 1e-9


def rows(values: list) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("case", CASES["coolsd_schedule"])
def test_the_schedule(case):
    mu = {"mean": None, "none": 0.0}[case["normalisation"]]
    found = omegas(case["L"], case["delta"], case["nu"], mu, case["clamp_min"], "exp")
    assert found == close(case["omega"], abs=TOLERANCE)


def test_automatic_mu_makes_the_mean_delta_in_every_shape():
    for shape in ("exp", "linear"):
        found = omegas(5, 1.1, 0.7, None, None, shape)
        assert sum(found) / 5 == close(1.1) and found == sorted(found, reverse=True)
    assert omegas(4, 2.0, 0.7, None, None, "linear") == close([3.2, 2.4, 1.6, 0.8])
    assert omegas(3, 1.5, 0.0, None, None, "exp") == close([1.5] * 3), "ν = 0 is UniformRSD"


def test_the_clamp_comes_last():
    assert omegas(5, 1.1, 0.7, None, 1.0, "exp") == close([2.8549941832, 1.4177481538, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("case", CASES["coolsd_single_step"])
def test_one_guess(case):
    p, q = rows(case["p"]), rows(case["q"])
    chance = GivenDice([case["u"], case["u_resample"]])
    rule = CoolSDRule([case["omega"]])
    verdict = walk(rule, chain([case["draft"]], q[None]), laws_only(torch.stack([p, p])), chance, 0.0)
    assert verdict.accept_prob == close([case["accept_prob"]], abs=TOLERANCE)
    assert bool(verdict.path) == case["accept"]
    if not case["accept"]:
        assert chance.law.tolist() == close(case["residual_Gstar"], abs=TOLERANCE)
        assert verdict.token == case["token_out"]
    law = first_token_law(CoolSDRule([case["omega"]]), p, q)
    assert law.tolist() == close(case["output_dist"], abs=TOLERANCE)
    assert float(total_variation(law, p)) == close(case["tv"], abs=TOLERANCE)
    assert rule.explain()["excess"] == close([case["tv"]], abs=TOLERANCE)


@pytest.mark.parametrize("case", CASES["coolsd_chain"])
def test_a_chain_counts_depth_from_its_first_guess(case):
    judged = len(case["trace"])
    chance = GivenDice([*case["u"][:judged], case["u_next"]])
    schedule = omegas(len(case["draft"]), case["delta"], case["nu"], None, case["clamp_min"], "exp")
    assert schedule == close(case["omega"], abs=TOLERANCE)
    draft = chain(case["draft"], rows(case["q_rows"]))
    rule = CoolSDRule(schedule)
    verdict = walk(rule, draft, laws_only(rows(case["p_rows"])), chance, 0.0)
    assert verdict.accept_prob[:judged] == close([entry["f"] for entry in case["trace"]], abs=TOLERANCE)
    assert chance.law.tolist() == close(case["next_dist"], abs=TOLERANCE)
    assert [*(case["draft"][node] for node in verdict.path), verdict.token] == case["emitted"]
    assert rule.explain()["omega"].tolist() == schedule


@pytest.mark.parametrize("case", CASES["coolsd_tree_node_derived"])
def test_siblings_share_the_factor_of_their_depth(case):
    p, q, tokens = rows(case["p"]), rows(case["q"]), case["candidates"]
    laws = [q]
    for token in tokens[:-1]:
        laws.append(laws[-1].index_fill(0, torch.tensor([token]), 0))
        laws[-1] /= laws[-1].sum()
    judged = len(case["trace"])
    chance = GivenDice([*case["u"][:judged], 0.5])
    draft = Draft(tokens, [-1] * len(tokens), torch.stack(laws))
    verdict = walk(CoolSDRule([case["omega"]]), draft, laws_only(p.expand(1 + len(tokens), -1)), chance, 0.0)
    assert verdict.accept_prob[:judged] == close([entry["f"] for entry in case["trace"]], abs=TOLERANCE)
    if case["accepted"] is None:
        assert chance.law.tolist() == close(case["final_dist"], abs=TOLERANCE)
    law = siblings_law(CoolSDRule([case["omega"]]), p, q, len(tokens))
    assert law.tolist() == close(case["output_dist"], abs=TOLERANCE)
    assert float(total_variation(law, p)) == close(case["tv"], abs=TOLERANCE)


@pytest.mark.parametrize("name", ["chain", "tree of sampled children", "tree of one-hot children"])
def test_factors_of_1_are_lossless(name):
    case = LOSSLESS[name]
    assert_same_law(case.law(lambda: CoolSDRule([1.0] * 4)), case.open().joint())


def test_a_cooling_schedule_is_another_law_than_its_mean():
    case = LOSSLESS["chain"]
    cooling = case.law(lambda: CoolSDRule(omegas(2, 1.5, 0.7, None, None, "exp")))
    flat = case.law(lambda: UniformRSDRule(1.5))
    assert gap(cooling, flat) > 1e-3 and gap(cooling, case.open().joint()) > 1e-3
