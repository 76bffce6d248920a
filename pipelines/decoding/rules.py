"""Rules: when a guess is kept, and what replaces a refused one. Pure functions of laws; they draw nothing."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from pipelines.models.protocol import Scores
from pipelines.primitives.distributions import residual
from pipelines.primitives.tree import Draft


@dataclass(frozen=True)
class Node:
    """What a rule may look at beside p, q and x; most ignore it."""

    depth: int
    """The first guess has depth 1."""
    index: int
    """The node's place in the draft; its own row of scores is index + 1."""
    draft: Draft
    scores: Scores
    lent: float
    """Sum over the round's tests so far of max(0, accept - min(1, p/q)): what the rule gave beyond the exact one."""
    root_prob: float
    """Target probability of the last committed token, before any residual; 0 where it is unknown."""


class Rule(Protocol):
    """The two verbs of verification. p: [V] the target's law, earlier siblings refused; q: [V] the draft's; x ~ q."""

    def accept(self, p: Tensor, q: Tensor, x: int, at: Node) -> float:
        """Probability of keeping x."""
        ...

    def residual(self, p: Tensor, q: Tensor, x: int, at: Node) -> Tensor:
        """[V] law that takes p's place after refusing x: for the next sibling, or for the token drawn instead."""
        ...

    def explain(self) -> dict[str, np.ndarray]:
        """What this rule alone can tell of the last round; asked after the clock has stopped."""
        return {}


class ExactRule(Rule):
    """Lossless speculative sampling: the output has the target's law, whatever the draft.

    Leviathan et al. 2023, Alg. 1; for siblings drawn without replacement, Li et al. 2024 (EAGLE), with q's rows the
    reduced ones. A one-hot q keeps x with p(x). A one-hot p (temperature 0) is greedy decoding.
    """

    def accept(self, p: Tensor, q: Tensor, x: int, at: Node) -> float:
        return min(1.0, float(p[x]) / float(q[x]))

    def residual(self, p: Tensor, q: Tensor, x: int, at: Node) -> Tensor:
        return residual(p, q)
