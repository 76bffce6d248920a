"""What the target said of each square, pass by pass, from when it was first seen until it was placed."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipelines.decoding.verify import Verdict
from pipelines.models.protocol import Scores


PASSES = 32  # newest passes that are told
LOOK_BACK = 8  # passes before these, so that the first that is told can be told with what came before it
RIVALS = 3  # likeliest tokens that are told beside the placed one
GUESSES = 8  # newest different guesses of a square that are told


@dataclass(frozen=True)
class Pass:
    """One forward over a window. Row i of the scores is the target's law of position first + i."""

    first: int
    guesses: list[int]
    """[N] tokens guessed for the positions from `first` on."""
    placed: list[int]
    """[n + 1] tokens that became final, from `first` on."""
    scores: Scores
    laws: Tensor
    """[N - n, V] what the next guesses of the positions that are not final yet were drawn from."""

    @property
    def end(self) -> int:
        return self.first + len(self.guesses) + 1

    @property
    def final(self) -> int:
        """Positions that are final after this pass."""
        return self.first + len(self.placed)


class History:
    """Keeps laws as they are and works nothing out before it is asked, which happens while the clock stands still."""

    def __init__(self) -> None:
        self.passes: deque[Pass] = deque(maxlen=PASSES + LOOK_BACK)

    def add(self, first: int, guesses: list[int], verdict: Verdict, scores: Scores, laws: Tensor) -> None:
        """Remember a pass; forget those that saw nothing of what is not final."""
        while self.passes and self.passes[0].end <= first:
            self.passes.popleft()
        placed = [*(guesses[node] for node in verdict.path), verdict.token]
        self.passes.append(Pass(first, guesses, placed, scores, laws))

    def notes(self) -> dict[str, np.ndarray]:
        """Of the squares placed in the last pass: m of them, I passes, the last one last, K tokens of interest.

        past_tokens: [m, K] the placed token, its rivals in the last pass, then guesses, the newest first, -1 where
        there are no more. past_guesses: [m, I] token guessed before each pass, -1 where none. past_probs: [m, I, K]
        probability before top-k and top-p, nan where a pass had not yet come to the square.
        """
        tokens = self.tokens()
        probs = self.columns(tokens, lambda one: (one.first, one.scores.guided))
        guesses = np.full((len(tokens), len(self.passes)), -1, np.int32)
        for index, one in enumerate(self.passes):
            known = one.guesses[self.passes[-1].first - one.first :][: len(tokens)]
            guesses[: len(known), index] = known
        return {
            "past_tokens": tokens.cpu().numpy().astype(np.int32),
            "past_guesses": guesses[:, -PASSES:],
            "past_probs": probs[:, -PASSES:].cpu().numpy(),
        }

    def tokens(self) -> Tensor:
        """[m, K]; see `notes`."""
        last = self.passes[-1]
        likeliest = last.scores.guided[: len(last.placed)].topk(min(RIVALS + 1, last.laws.shape[-1])).indices.tolist()
        told = []
        for offset, (token, near) in enumerate(zip(last.placed, likeliest)):
            rivals = [other for other in near if other != token][:RIVALS]
            guesses: dict[int, None] = {}
            for one in reversed(self.passes):
                guesses |= dict.fromkeys(one.guesses[last.first + offset - one.first :][:1])
            others = [guess for guess in list(guesses)[:GUESSES] if guess not in (token, *rivals)]
            told.append([token, *rivals, *others])
        longest = max(map(len, told))
        rows = [row + [-1] * (longest - len(row)) for row in told]
        return torch.tensor(rows, device=last.laws.device)

    def columns(self, tokens: Tensor, rows: Callable[[Pass], tuple[int, Tensor]]) -> Tensor:
        """[m, I, K] float32 entries of tokens [m, K] in what `rows` gives of each pass: first position, [R, V].

        nan where a pass has no row of a square, and for token -1.
        """
        last = self.passes[-1]
        found = torch.full((len(tokens), len(self.passes), tokens.shape[1]), torch.nan, device=tokens.device)
        for index, one in enumerate(self.passes):
            first, laws = rows(one)
            skipped = max(0, first - last.first)
            here = laws[last.first + skipped - first :][: max(0, len(tokens) - skipped)]
            found[skipped : skipped + len(here), index] = here.gather(
                1, tokens[skipped : skipped + len(here)].clamp(0)
            ).float()
        return found.masked_fill_(tokens[:, None] < 0, torch.nan)
