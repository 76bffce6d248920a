"""Rules that keep more guesses than the exact one, and tell what that costs. The rules of methods extend this."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from pipelines.decoding.rules import Node, Rule


def normalised(mass: Tensor, p: Tensor) -> Tensor:
    """[V] law in proportion to `mass`; p where there is none, for then nothing can have been refused."""
    total = mass.sum()
    return mass / total if total > 0 else p


def best_residual(p: Tensor, kept: Tensor) -> Tensor:
    """G*: norm(max(p - q f, 0)), the residual that leaves the output nearest to p in total variation.

    p: [V]; kept: [V] the mass q f of tokens that are drafted and kept. No residual ends nearer than the sum of
    max(q f - p, 0), for what stands above p cannot be taken back. COOL-SD, arXiv:2601.09212, Eq. 5.
    """
    return normalised((p - kept).clamp(min=0), p)


@dataclass
class RelaxedRule(Rule):
    """Keeps x with a chance f(x) that may exceed min(1, p/q); a refused token is replaced by G* unless told otherwise.

    Notes of a round, one entry a judged node: its place in the draft (`judged`); what its own chance gave beyond the
    exact rule, max(0, f - min(1, p/q)) (`infidelity`); and the same as expected before the guess was drawn, the sum of
    max(q f - p, 0), the total variation that this test costs under G* (`excess`).
    """

    judged: list[tuple[Tensor, Tensor, int, Node]] = field(default_factory=list, init=False, repr=False)

    def chance(self, p: Tensor, q: Tensor, x: int, at: Node) -> float:
        """f(x), at most 1."""
        raise NotImplementedError(f"{type(self).__name__} names no chance of keeping a token.")

    def kept(self, p: Tensor, q: Tensor, at: Node) -> Tensor:
        """[V] q f: `chance` of every token, times its chance of being drafted."""
        raise NotImplementedError(f"{type(self).__name__} names no mass that it keeps.")

    def accept(self, p: Tensor, q: Tensor, x: int, at: Node) -> float:
        self.judged.append((p, q, x, at))
        return self.chance(p, q, x, at)

    def residual(self, p: Tensor, q: Tensor, x: int, at: Node) -> Tensor:
        return best_residual(p, self.kept(p, q, at))

    def explain(self) -> dict[str, np.ndarray]:
        tests, self.judged = self.judged, []
        exact = [min(1.0, float(p[x]) / float(q[x])) for p, q, x, _ in tests]
        lost = [max(0.0, self.chance(*test) - strict) for test, strict in zip(tests, exact)]
        excess = [float((self.kept(p, q, at) - p).clamp(min=0).sum(dtype=torch.float64)) for p, q, _, at in tests]
        return {
            "judged": np.array([at.index for *_, at in tests], np.int32),
            "infidelity": np.array(lost, np.float64),
            "excess": np.array(excess, np.float64),
        }


class ScaledRule(RelaxedRule):
    """f(x) = min(1, ω p/q), ω by the depth of the guess; where ω is 1 throughout it is the exact rule."""

    def omega(self, depth: int) -> float:
        """ω of a guess of this depth; the first guess has depth 1."""
        raise NotImplementedError(f"{type(self).__name__} names no factor.")

    def chance(self, p: Tensor, q: Tensor, x: int, at: Node) -> float:
        return min(1.0, self.omega(at.depth) * float(p[x]) / float(q[x]))

    def kept(self, p: Tensor, q: Tensor, at: Node) -> Tensor:
        return torch.minimum(q, self.omega(at.depth) * p)
