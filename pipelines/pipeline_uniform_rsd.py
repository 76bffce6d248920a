"""UniformRSD: every guess gets the same extra chance. The yardstick of COOL-SD."""

from dataclasses import dataclass

from pipelines.decoding.relaxed import ScaledRule


@dataclass
class UniformRSDRule(ScaledRule):
    """f(x) = min(1, δ p/q) at every depth; G* as residual."""

    delta: float

    def omega(self, depth: int) -> float:
        return self.delta
