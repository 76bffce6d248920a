"""Jacobi decoding: guess many squares, look once, keep what the target would have drawn anyway."""

from dataclasses import dataclass

from pipelines.base import ARImagePipeline
from pipelines.decoding.drafters import Drafter
from pipelines.decoding.jacobi_drafter import STARTS, AsPoints, JacobiDrafter
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


class JacobiPipeline(ARImagePipeline):
    """Text to image with fewer passes and no second network: Jacobi decoding.

    Each pass looks at a window of squares; a guess x is kept with chance p(x), and all guesses after the first refusal
    are drawn anew. Lossless; at temperature 0 it is the fixed-point iteration of Song et al. 2021, arXiv:2002.03629,
    and a guess is kept where it is what the target would take. Above, speculative Jacobi decoding keeps far more.

    >>> import torch
    >>> from pipelines import JacobiPipeline
    >>> pipe = JacobiPipeline.from_pretrained("assets/emoji-scenes")
    >>> trace = pipe("a penguin on snow", generator=torch.Generator().manual_seed(7), temperature=0.0).traces[0]
    >>> trace.complete, trace.nfe < 256
    (True, True)
    """

    Settings = WindowSettings

    def method(self, settings: WindowSettings, session: Session) -> tuple[Drafter, Rule]:
        return AsPoints(JacobiDrafter(session.layout, settings.window, settings.start)), ExactRule()
