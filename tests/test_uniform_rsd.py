"""UniformRSD and G*: the one-round law is the closed form, nothing comes nearer, and a factor of 1 is exact."""

import pytest
import torch
from conftest import assert_same_law
from rule_laws import dirichlet, first_token_law, law_by_sums, node, shares
from test_laws import LOSSLESS

from pipelines.decoding.relaxed import best_residual
from pipelines.pipeline_uniform_rsd import UniformRSDRule
from pipelines.primitives.distributions import residual, total_variation


PAIRS = [(dirichlet(seed, 5), dirichlet(100 + seed, 5)) for seed in range(8)]


@pytest.mark.parametrize("omega", [0.5, 1.0, 1.7, 4.0])
def test_one_round_has_the_law_of_the_closed_form(omega):
    for p, q in PAIRS:
        kept = [min(b, omega * a) for a, b in zip(p.tolist(), q.tolist())]
        replaced = shares([a - k for a, k in zip(p.tolist(), kept)], p.tolist())
        f = [k / b for k, b in zip(kept, q.tolist())]
        expected = law_by_sums(f, [replaced] * len(p), q)
        found = first_token_law(UniformRSDRule(omega), p, q)
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
        excess = sum(max(0.0, k - a) for a, k in zip(p.tolist(), kept))
        assert float(total_variation(found, p)) == pytest.approx(excess, abs=1e-12), "G* costs more than it must"


def test_no_other_residual_is_nearer():
    nearest = []
    for seed, (p, q) in enumerate(PAIRS):
        kept = torch.minimum(q, 1.8 * p)
        refused = 1 - kept.sum()
        best = total_variation(kept + refused * best_residual(p, kept), p)
        others = total_variation(kept + refused * dirichlet(seed, 1000, len(p)), p)
        assert others.min() >= best - 1e-12
        nearest.append(float(others.min() - best))
    assert max(nearest) > 1e-3, "1,000 residuals that all do as well prove nothing"


def test_the_exact_residual_is_the_best_one_where_no_guess_loses_chance():
    for p, q in PAIRS:
        torch.testing.assert_close(best_residual(p, torch.minimum(q, 3 * p)), residual(p, q))
        assert total_variation(best_residual(p, torch.minimum(q, 0.5 * p)), residual(p, q)) > 1e-4


@pytest.mark.parametrize("name", ["chain", "tree of sampled children", "tree of one-hot children"])
def test_a_factor_of_1_is_lossless(name):
    case = LOSSLESS[name]
    assert_same_law(case.law(lambda: UniformRSDRule(1.0)), case.open().joint())


def test_notes_say_what_each_test_gave_away():
    rule = UniformRSDRule(2.0)
    p, q = torch.tensor([0.1, 0.9]), torch.tensor([0.5, 0.5])
    assert rule.accept(p, q, 0, node(1)) == pytest.approx(0.4)
    assert rule.accept(p, q, 1, node(2)) == 1.0
    notes = rule.explain()
    assert notes["judged"].tolist() == [0, 1]
    assert notes["infidelity"] == pytest.approx([0.2, 0.0])
    assert notes["excess"] == pytest.approx([0.1, 0.1])  # kept 0.2 of a token that p gives 0.1
    assert all(len(note) == 0 for note in rule.explain().values()), "a round's notes are told twice"


def test_infidelity_is_what_the_excess_expects():
    rule = UniformRSDRule(1.6)
    for p, q in PAIRS:
        for x in range(len(p)):
            rule.accept(p, q, x, node())
        notes = rule.explain()
        assert float((torch.from_numpy(notes["infidelity"]) * q).sum()) == pytest.approx(notes["excess"][0])
