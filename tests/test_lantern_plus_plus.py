"""LANTERN++: nobody borrows more than a multiple of what it has."""

import pytest
import torch
from rule_laws import dirichlet, first_token_law, node

from pipelines.models.codebook import neighbours
from pipelines.pipeline_lantern_plus_plus import LanternPlusPlusRule


NEAREST = neighbours(torch.randn(6, 2, generator=torch.Generator().manual_seed(4)), 5)


@pytest.mark.parametrize("seed", range(6))
def test_a_code_never_counts_for_more_than_its_multiple(seed):
    p, flat = dirichlet(seed, 6), torch.full((6,), 1 / 6, dtype=torch.float64)
    rule = LanternPlusPlusRule(NEAREST, 4, 2.5)
    for x in range(6):
        counted = float(p[x] + p[rule.lenders(p, x)].sum())
        assert counted <= 2.5 * float(p[x]) + 1e-12
        assert rule.chance(p, flat, x, node()) == pytest.approx(min(1.0, 6 * counted))


def test_what_the_target_excludes_stays_excluded():
    """LANTERN's budget would revive it."""
    p, q = torch.tensor([0.0, 0.5, 0.2, 0.1, 0.1, 0.1]), torch.tensor([0.9, 0.1, 0.0, 0.0, 0.0, 0.0])
    for residual in ("paper", "gstar", "released"):
        rule = LanternPlusPlusRule(NEAREST, 4, 20.0, residual)
        assert rule.chance(p, q, 0, node()) == 0
        assert first_token_law(rule, p.double(), q.double())[0] == 0
