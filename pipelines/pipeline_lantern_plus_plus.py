"""LANTERN++: what a guess may borrow is bounded by what it has."""

from dataclasses import dataclass

from torch import Tensor

from pipelines.pipeline_lantern import LanternRule


@dataclass
class LanternPlusPlusRule(LanternRule):
    """LANTERN whose budget is (λ - 1) p(x): p_A(x) never exceeds λ p(x), and what p excludes borrows nothing.

    bound: λ. Park et al. 2025, arXiv:2502.06352.
    """

    def budget(self, p_x: Tensor) -> Tensor | float:
        return (self.bound - 1) * p_x
