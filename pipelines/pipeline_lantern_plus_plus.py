"""LANTERN++: what a guess may borrow is bounded by what it has."""

from dataclasses import dataclass

from torch import Tensor

from pipelines.pipeline_lantern import LanternRule, NeighbourSettings, nearest_codes
from pipelines.pipeline_speculative import DraftPipeline
from pipelines.settings import knob


@dataclass
class LanternPlusPlusRule(LanternRule):
    """LANTERN whose budget is (λ - 1) p(x): p_A(x) never exceeds λ p(x), and what p excludes borrows nothing.

    bound: λ. Park et al. 2025, arXiv:2502.06352.
    """

    def budget(self, p_x: Tensor) -> Tensor | float:
        return (self.bound - 1) * p_x


@dataclass(frozen=True)
class LanternPlusPlusSettings(NeighbourSettings):
    draft: str = knob(
        "static",
        choices=("chain", "static", "dynamic"),
        label="Draft",
        help="One guess a square; a tree of fixed shape, drawn; or a tree that grows where the head is sure.",
    )
    lam: float = knob(
        2.0, low=1.0, high=20.0, step=0.5, label="Multiple λ", help="Times a guess's own probability; 1 is lossless."
    )


class LanternPlusPlusPipeline(DraftPipeline):
    """Text to image with fewer passes still, not lossless: a guess borrows in proportion to what it has.

    As LANTERN, but a guess counts for at most λ times its own probability: codes which the target excludes stay
    excluded. And guesses form a static tree of sampled children. Park et al. 2025, arXiv:2502.06352.

    >>> import torch
    >>> from pipelines import LanternPlusPlusPipeline
    >>> pipe = LanternPlusPlusPipeline.from_pretrained("assets/emoji-scenes")
    >>> trace = pipe("a penguin on snow", generator=torch.Generator().manual_seed(7), lam=3.0).traces[0]
    >>> trace.complete, trace.nfe < 256
    (True, True)
    """

    Settings = LanternPlusPlusSettings

    def rule(self, settings: LanternPlusPlusSettings) -> LanternPlusPlusRule:
        nearest = nearest_codes(self, settings.neighbours + 1)
        return LanternPlusPlusRule(nearest, settings.neighbours, settings.lam, settings.residual)
