"""Jacobi drafts: a window of guesses that the target's last forward rewrites. No drafter network.

Song et al. 2021 (Jacobi decoding); Teng et al. 2024, arXiv:2410.01699 (speculative Jacobi decoding).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pipelines.decoding.coupling import Coupling, afresh
from pipelines.decoding.drafters import Drafter
from pipelines.decoding.history import History
from pipelines.decoding.verify import Verdict
from pipelines.models.protocol import Scores
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import one_hot
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import EMPTY, Draft, chain


STARTS = ("uniform", "copy_left", "sample_left")

Redraft = Callable[[Scores, int, int], Tensor]
"""(scores, first, kept) -> [rows - kept, V] laws to draw the next guesses from. Row i of the scores is the target's
law of position first + i; the first `kept` positions are final now. Called after every pass, also where nothing is
left to draw. Any function of the past is lossless."""


def newest(scores: Scores, first: int, kept: int) -> Tensor:
    """Speculative Jacobi decoding: the next guess is drawn from the target's newest law of the position."""
    return scores.probs[kept:]


class JacobiDrafter(Drafter):
    """Keeps the guesses of a window of positions and draws each anew from what the target last said of it.

    window: rows of a target forward, so window - 1 guesses. start: law of the first guess for a position: uniform over
    the vocabulary; certainty of the left neighbour's token (copy_left); the newest law of the left neighbour
    (sample_left). The first column starts uniform, a forced position with its token. q is the law each guess was drawn
    from: with the left neighbour's token under the left neighbour's law, the output would be biased. couple: how the
    next guess is drawn from its law. Notes of a round: see `History.notes`.
    """

    def __init__(
        self, layout: Layout, window: int, start: str, redraft: Redraft = newest, couple: Coupling = afresh
    ) -> None:
        if window < 2:
            raise ValueError(f"`window` must be at least 2, got {window}.")
        if start not in STARTS:
            raise ValueError(f"`start` must be one of {', '.join(STARTS)}, got {start!r}.")
        self.layout, self.window, self.start, self.redraft = layout, window, start, redraft
        self.couple = couple
        self.history = History()
        self.final = 0  # positions that hold their last token
        # By position: the newest token and law of every guess, and of the last final position.
        self.tokens: dict[int, int] = {}
        self.laws: dict[int, Tensor] = {}

    def propose(self, committed: list[int], room: int, chance: Chance) -> Draft:
        assert len(committed) == self.final, f"{len(committed)} tokens are committed, {self.final} were observed"
        positions = range(self.final, self.final + min(self.window - 1, room))
        for position in positions:
            if position not in self.tokens:
                law = self.first_law(position)
                self._guess(position, int(chance.categorical(law[None])), law)
        if not positions:
            return EMPTY
        tokens = [self.tokens[position] for position in positions]
        return chain(tokens, torch.stack([self.laws[position] for position in positions]))

    def first_law(self, position: int) -> Tensor:
        """[V] law of a position that the target has not seen yet, by `start`."""
        like = self.laws[self.final - 1]
        left = self.layout.left(position)
        if self.start == "uniform" or left is None:
            law = torch.full_like(like, 1 / len(like))
        elif self.start == "copy_left":
            law = one_hot([self.tokens[left]], like)[0]
        else:
            law = self.laws[left]
        return self.layout.force(law, position)

    def observe(self, draft: Draft, scores: Scores, verdict: Verdict, chance: Chance) -> None:
        first, kept = self.final, len(verdict.path) + 1
        self.final = first + kept
        laws = self.redraft(scores, first, kept)
        self.history.add(first, draft.tokens, verdict, scores, laws)
        before = [self.laws[position] for position in range(self.final, first + len(draft))]
        self.tokens, self.laws = {}, {}
        self._guess(self.final - 1, verdict.token, scores.probs[kept - 1])
        if len(laws):
            self.redraw(laws, draft.tokens[kept:], before, chance)

    def redraw(self, laws: Tensor, tokens: list[int], before: list[Tensor], chance: Chance) -> None:
        """Draw the next guesses of the positions that are not final, from `laws` [n, V]. Others: see `Coupling`."""
        for offset, token in enumerate(self.couple(laws, self.final, tokens, before, chance)):
            self._guess(self.final + offset, token, laws[offset])

    def explain(self) -> dict[str, np.ndarray]:
        return self.history.notes()

    def _guess(self, position: int, token: int, law: Tensor) -> None:
        self.tokens[position], self.laws[position] = token, law


class AsPoints(Drafter):
    """A drafter's guesses as certainties: q is one-hot. Plain Jacobi decoding is this over a `JacobiDrafter`.

    Lossless where a guess does not look at its own target law of this round, as no draft can.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter

    def propose(self, committed: list[int], room: int, chance: Chance) -> Draft:
        draft = self.drafter.propose(committed, room, chance)
        return replace(draft, q=one_hot(draft.tokens, draft.q))

    def observe(self, draft: Draft, scores: Scores, verdict: Verdict, chance: Chance) -> None:
        self.drafter.observe(draft, scores, verdict, chance)

    def explain(self) -> dict[str, np.ndarray]:
        return self.drafter.explain()
