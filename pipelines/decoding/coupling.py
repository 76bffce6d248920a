"""How the next guess of a square is drawn from its new law: afresh, or so that it likely equals the last guess.

Whatever the way, a guess has its new law given all that happened before the square, so verification stays as exact as
it was. So et al. 2025, arXiv:2510.24211. Their released code keeps the old law beside a kept guess, which is biased.
"""

from typing import Protocol

import torch
from torch import Tensor

from pipelines.primitives.chance import Chance


COUPLINGS = ("none", "maximal", "gumbel")
LONGEST = 64  # positions of a window, which may be drawn one by one


class Coupling(Protocol):
    """Draws the next guesses of one run."""

    def __call__(self, laws: Tensor, first: int, tokens: list[int], before: list[Tensor], chance: Chance) -> list[int]:
        """A token from each of `laws` [n, V], those of the positions from `first` on.

        tokens, before: [k <= n] the last guesses of the first k positions and the laws [V] they were drawn from.
        """
        ...


def afresh(laws: Tensor, first: int, tokens: list[int], before: list[Tensor], chance: Chance) -> list[int]:
    return chance.categorical(laws).tolist()


def maximal(laws: Tensor, first: int, tokens: list[int], before: list[Tensor], chance: Chance) -> list[int]:
    """Keep the last guess x with chance min(1, new law / old law), else draw from what the new law has more."""
    if not tokens:
        return chance.categorical(laws).tolist()
    old = torch.stack(before)  # [k, V]
    where = range(len(tokens))
    keeping = (laws[where, tokens] / old[where, tokens]).clamp(max=1).tolist()
    drawn = [x if chance.bernoulli(prob)[0] else None for x, prob in zip(tokens, keeping)]
    drawn += [None] * (len(laws) - len(tokens))
    rows = [row for row, x in enumerate(drawn) if x is None]
    if rows:
        excess = torch.cat([(laws[: len(tokens)] - old).clamp(min=0), laws[len(tokens) :]])[rows]
        # Up to rounding nothing is refused where the new law has nothing more.
        excess = torch.where(excess.sum(-1, keepdim=True) > 0, excess, laws[rows])
        for row, x in zip(rows, chance.categorical(excess).tolist()):
            drawn[row] = x
    return drawn


class Gumbel(Coupling):
    """Noise of a position's own, drawn once, decides all its guesses: similar laws so give the same token.

    argmax of log p + Gumbel noise, which is argmax of p over exponential noise.
    """

    def __init__(self) -> None:
        self.noise: dict[int, Tensor] = {}

    def __call__(self, laws: Tensor, first: int, tokens: list[int], before: list[Tensor], chance: Chance) -> list[int]:
        positions = range(first, first + len(laws))
        new = [position for position in positions if position not in self.noise]
        self.noise = {position: noise for position, noise in self.noise.items() if position >= first - LONGEST}
        self.noise |= zip(new, chance.exponential(len(new), laws.shape[-1]).to(laws.device))
        return (laws / torch.stack([self.noise[position] for position in positions])).argmax(-1).tolist()


def coupling(name: str) -> Coupling:
    """The coupling of this name, fresh for one run."""
    return {"none": afresh, "maximal": maximal, "gumbel": Gumbel()}[name]
