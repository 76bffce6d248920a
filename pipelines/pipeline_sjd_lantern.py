"""LANTERN on speculative Jacobi decoding: a guess may borrow probability from the codes that look like it."""

from dataclasses import dataclass

from pipelines.base import ARImagePipeline
from pipelines.decoding.drafters import Drafter
from pipelines.decoding.jacobi_drafter import JacobiDrafter
from pipelines.decoding.rules import Rule
from pipelines.models.protocol import Session
from pipelines.pipeline_jacobi import WindowSettings
from pipelines.pipeline_lantern import LanternRule, nearest_codes
from pipelines.settings import knob


@dataclass(frozen=True)
class BorrowSettings(WindowSettings):
    neighbours: int = knob(
        64,
        low=1,
        high=1000,
        step=1,
        label="Neighbours",
        help="Codes nearest to a guess in the codebook that it may borrow from.",
    )
    delta: float = knob(
        0.1,
        low=0.0,
        high=1.0,
        step=0.01,
        label="Budget δ",
        help="Most probability that a guess may borrow; 0 is lossless.",
    )


def borrow_rule(pipe: ARImagePipeline, settings: BorrowSettings) -> LanternRule:
    """A refused guess is replaced from norm(max(p - q, 0)), which LANTERN's G* is."""
    nearest = nearest_codes(pipe, settings.neighbours)
    return LanternRule(nearest, settings.neighbours, settings.delta, "gstar")


class SJDLanternPipeline(ARImagePipeline):
    """Text to image with fewer passes, not lossless: LANTERN's rule on the guesses of speculative Jacobi decoding.

    A guess is kept as if it had the probability of its nearest codes too, up to a budget; a refused one is replaced
    as in speculative Jacobi decoding. Jang et al. 2025, arXiv:2410.03355, whose draft is a network's; on Jacobi
    guesses there are published figures and no code.

    >>> import torch
    >>> from pipelines import SJDLanternPipeline
    >>> pipe = SJDLanternPipeline.from_pretrained("assets/emoji-scenes")
    >>> trace = pipe("a penguin on snow", generator=torch.Generator().manual_seed(7), delta=0.2).traces[0]
    >>> trace.complete, trace.nfe < 256
    (True, True)
    """

    Settings = BorrowSettings

    def method(self, settings: BorrowSettings, session: Session) -> tuple[Drafter, Rule]:
        return JacobiDrafter(session.layout, settings.window, settings.start), borrow_rule(self, settings)
