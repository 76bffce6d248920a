"""Speculative Jacobi decoding: the target guesses for itself, from what it said of a square one pass ago."""

from dataclasses import dataclass

from pipelines.base import ARImagePipeline
from pipelines.decoding.drafters import Drafter
from pipelines.decoding.jacobi_drafter import STARTS, JacobiDrafter
from pipelines.decoding.rules import ExactRule, Rule
from pipelines.models.protocol import Session
from pipelines.settings import Settings, knob


@dataclass(frozen=True)
class WindowSettings(Settings):
    window: int = knob(
        16,
        low=2,
        high=64,
        step=1,
        label="Window",
        help="Squares that one pass looks at: one less is guessed and checked.",
    )
    start: str = knob(
        "uniform",
        choices=STARTS,
        label="First guess",
        help="Of a square not seen yet: any code, its left neighbour's code, or a draw from its left neighbour's law.",
    )


class SJDPipeline(ARImagePipeline):
    """Text to image with fewer passes and no second network: speculative Jacobi decoding.

    Each pass looks at a window of squares. A guess is kept with chance min(1, p/q); what comes after the first refusal
    is drawn anew from the target's newest laws, which are the q of the next pass. Lossless: the pictures follow
    exactly the target's law. Teng et al. 2024, arXiv:2410.01699; a square seen for the first time is guessed uniformly
    under a uniform q, which is as exact as the paper's one-hot q and keeps more.

    >>> import torch
    >>> from pipelines import SJDPipeline
    >>> pipe = SJDPipeline.from_pretrained("assets/emoji-scenes")
    >>> trace = pipe("a panda on snow", generator=torch.Generator().manual_seed(7), window=16).traces[0]
    >>> trace.complete, trace.nfe < 256
    (True, True)
    """

    Settings = WindowSettings

    def method(self, settings: WindowSettings, session: Session) -> tuple[Drafter, Rule]:
        return JacobiDrafter(session.layout, settings.window, settings.start), ExactRule()
