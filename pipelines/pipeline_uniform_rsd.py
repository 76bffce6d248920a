"""UniformRSD: every guess gets the same extra chance. The yardstick of COOL-SD."""

from dataclasses import dataclass

from pipelines.decoding.relaxed import ScaledRule
from pipelines.pipeline_speculative import DraftPipeline, DraftSettings
from pipelines.settings import knob


@dataclass
class UniformRSDRule(ScaledRule):
    """f(x) = min(1, δ p/q) at every depth; G* as residual."""

    delta: float

    def omega(self, depth: int) -> float:
        return self.delta


@dataclass(frozen=True)
class UniformSettings(DraftSettings):
    delta: float = knob(
        1.1, low=0.5, high=5.0, step=0.1, label="Relaxation δ", help="Times the chance of every guess; 1 is lossless."
    )


class UniformRSDPipeline(DraftPipeline):
    """Text to image with fewer passes still, not lossless: every guess is kept with chance min(1, δ p/q).

    A refused guess is replaced from G* = norm(max(p - q f, 0)), which keeps the law as near to the target's as this
    chance allows. The uniform baseline of COOL-SD, arXiv:2601.09212.

    >>> import torch
    >>> from pipelines import UniformRSDPipeline
    >>> pipe = UniformRSDPipeline.from_pretrained("assets/emoji-scenes")
    >>> trace = pipe("a penguin on snow", generator=torch.Generator().manual_seed(7), delta=2.0).traces[0]
    >>> trace.complete, trace.nfe < 256
    (True, True)
    """

    Settings = UniformSettings

    def rule(self, settings: UniformSettings) -> UniformRSDRule:
        return UniformRSDRule(settings.delta)
