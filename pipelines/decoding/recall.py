"""Guesses from memory: what the target said of a square when the squares before it last held the same tokens."""

from collections.abc import Iterable

import torch
from torch import Tensor

from pipelines.decoding.coupling import Coupling
from pipelines.decoding.history import Pass
from pipelines.decoding.jacobi_drafter import JacobiDrafter
from pipelines.models.protocol import Scores
from pipelines.primitives.chance import Chance
from pipelines.primitives.layout import Layout


class RecallDrafter(JacobiDrafter):
    """Draws guesses from left to right, each knowing those drawn before it.

    The newest law of a square was the target's answer to guesses of which most are others by now. So a guess is drawn
    from the mean of those past laws of its square for which most tokens in a row before it were what they are now;
    where not even the token just before was, that is the mean of all. A function of the past and of the guesses before
    it, this law is as q lossless. Ours; it looks at what SJD-VP looks at.
    """

    def __init__(self, layout: Layout, window: int, start: str, couple: Coupling) -> None:
        super().__init__(layout, window, start, own, couple)

    def redraw(self, laws: Tensor, tokens: list[int], before: list[Tensor], chance: Chance) -> None:
        passes = self.history.passes
        line = {one.first + at: token for one in passes for at, token in enumerate(one.placed)}
        for offset, law in enumerate(laws):
            position, rest = self.final + offset, slice(offset, offset + 1)
            law.copy_(recalled(passes, position, line))
            (line[position],) = self.couple(law[None], position, tokens[rest], before[rest], chance)
            self._guess(position, line[position], law)


def own(scores: Scores, first: int, kept: int) -> Tensor:
    """A `Redraft` whose laws may be written over."""
    return scores.probs[kept:].clone()


def recalled(passes: Iterable[Pass], position: int, line: dict[int, int]) -> Tensor:
    """[V]: the mean of the laws of `position` in those passes that agree with `line` for longest before it.

    line: the newest token of each position before, from the first of the oldest pass on.
    """
    seen = [one for one in passes if one.first <= position < one.end]
    breaks = [parting(one, position, line) for one in seen]
    earliest = min(breaks)
    alike = [one for one, at in zip(seen, breaks) if at == earliest]
    return torch.stack([one.scores.probs[position - one.first] for one in alike]).mean(0)


def parting(one: Pass, position: int, line: dict[int, int]) -> int:
    """The newest position before `position` whose token is not the one that was read in the pass; -1: all are."""
    read = range(position - 1, one.first - 1, -1)
    return next((at for at in read if one.guesses[at - one.first] != line[at]), -1)
