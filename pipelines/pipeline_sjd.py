"""Speculative Jacobi decoding: the target guesses for itself, from what it said of a square one pass ago."""

from dataclasses import dataclass

from pipelines.base import ARImagePipeline
from pipelines.decoding.coupling import COUPLINGS, coupling
from pipelines.decoding.drafters import Drafter
from pipelines.decoding.jacobi_drafter import JacobiDrafter, newest
from pipelines.decoding.rules import ExactRule, Rule
from pipelines.models.protocol import Session
from pipelines.pipeline_jacobi import WindowSettings
from pipelines.settings import knob


@dataclass(frozen=True)
class SJDSettings(WindowSettings):
    coupling: str = knob(
        "none",
        choices=COUPLINGS,
        label="Next guess",
        help="Drawn afresh (none), the last guess where its new law allows (maximal), or by a square's own noise.",
    )


class SJDPipeline(ARImagePipeline):
    """Text to image with fewer passes and no second network: speculative Jacobi decoding.

    Each pass looks at a window of squares. A guess is kept with chance min(1, p/q); what comes after the first refusal
    is drawn anew from the target's newest laws, which are the q of the next pass. Lossless: the pictures follow
    exactly the target's law. Teng et al. 2024, arXiv:2410.01699; a square seen for the first time is guessed uniformly
    under a uniform q, which is as exact as the paper's one-hot q and keeps more. Coupling, which makes the next guess
    likely the same as the last, is as lossless: So et al. 2025, arXiv:2510.24211.

    >>> import torch
    >>> from pipelines import SJDPipeline
    >>> pipe = SJDPipeline.from_pretrained("assets/emoji-scenes")
    >>> trace = pipe("a penguin on snow", generator=torch.Generator().manual_seed(7), window=16).traces[0]
    >>> trace.complete, trace.nfe < 256
    (True, True)
    """

    Settings = SJDSettings

    def method(self, settings: SJDSettings, session: Session) -> tuple[Drafter, Rule]:
        couple = coupling(settings.coupling)
        return JacobiDrafter(session.layout, settings.window, settings.start, newest, couple), ExactRule()
