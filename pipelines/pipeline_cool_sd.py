"""COOL-SD: guesses get an extra chance that cools with their depth in the draft."""

import math
from dataclasses import dataclass

import numpy as np

from pipelines.decoding.relaxed import ScaledRule


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
