"""COOL-SD: guesses get an extra chance that cools with their depth in the draft."""

import math
from dataclasses import dataclass

import numpy as np

from pipelines.decoding.relaxed import ScaledRule
from pipelines.pipeline_speculative import DraftPipeline, DraftSettings
from pipelines.settings import knob


SHAPES = ("exp", "linear")


def omegas(length: int, delta: float, nu: float, mu: float | None, clamp_min: float | None, shape: str) -> list[float]:
    """ω_1 .. ω_L of guesses of depth 1 .. `length`: δ exp(-ν i - μ), or δ (L + 1 - i) exp(-μ) for shape "linear".

    mu: None makes their arithmetic mean δ. clamp_min: the least ω, applied last; 1 keeps the tail as strict as the
    exact rule and no stricter. COOL-SD, arXiv:2601.09212; the linear form is ours, the paper names none.
    """
    depths = range(1, length + 1)
    falling = [math.exp(-nu * depth) if shape == "exp" else float(length + 1 - depth) for depth in depths]
    scale = length / math.fsum(falling) if mu is None else math.exp(-mu)
    floor = 0.0 if clamp_min is None else clamp_min
    return [max(floor, delta * scale * height) for height in falling]


@dataclass
class CoolSDRule(ScaledRule):
    """f(x) = min(1, ω p/q) with ω cooling by depth, afresh every round; G* as residual.

    schedule: ω of depth 1, 2, .., see `omegas`; it goes into the notes of every round as `omega`.
    """

    schedule: list[float]

    def omega(self, depth: int) -> float:
        return self.schedule[depth - 1]

    def explain(self) -> dict[str, np.ndarray]:
        return super().explain() | {"omega": np.array(self.schedule, np.float64)}


@dataclass(frozen=True)
class CoolSettings(DraftSettings):
    delta: float = knob(
        1.1, low=0.5, high=5.0, step=0.1, label="Relaxation δ", help="Mean of the factors ω that chances are times."
    )
    nu: float = knob(
        0.7, low=0.0, high=2.0, step=0.05, label="Cooling ν", help="How fast ω falls with depth; 0 is uniform."
    )
    mu: float | None = knob(
        None, low=-5.0, high=3.0, step=0.1, label="Scale μ", help="Divides ω by exp(μ); empty keeps their mean at δ."
    )
    clamp_min: float | None = knob(
        None,
        low=0.0,
        high=5.0,
        step=0.1,
        label="Least ω",
        help="1 makes late guesses no stricter than lossless decoding; empty sets no bound.",
    )
    shape: str = knob("exp", choices=SHAPES, label="Shape", help="How ω falls with depth.")

    @property
    def schedule(self) -> list[float]:
        """ω of depths 1 to L, the configured depth, also where a draft ends with the picture."""
        return omegas(self.depth, self.delta, self.nu, self.mu, self.clamp_min, self.shape)


class CoolSDPipeline(DraftPipeline):
    """Text to image with fewer passes still, not lossless: early guesses are kept more readily than late ones.

    A guess of depth i is kept with chance min(1, ω_i p/q), ω_i = δ exp(-ν i - μ), and a refused one is replaced from
    G* = norm(max(p - q f, 0)). What it gives up: each extra percent of kept guesses moves the law of that square by a
    percent. COOL-SD, arXiv:2601.09212; `clamp_min=1` is ours: the tail of the paper's schedule falls below 1, which
    refuses guesses that were free.

    >>> import torch
    >>> from pipelines import CoolSDPipeline
    >>> pipe = CoolSDPipeline.from_pretrained("assets/emoji-scenes")
    >>> trace = pipe("a penguin on snow", generator=torch.Generator().manual_seed(7), delta=2.0).traces[0]
    >>> trace.complete, trace.nfe < 256
    (True, True)
    """

    Settings = CoolSettings

    def rule(self, settings: CoolSettings) -> CoolSDRule:
        return CoolSDRule(settings.schedule)
