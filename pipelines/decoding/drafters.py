"""Drafters: who guesses. The empty guess makes the loop plain autoregression."""

from typing import Protocol

import numpy as np

from pipelines.decoding.verify import Verdict
from pipelines.models.protocol import Scores
from pipelines.primitives.chance import Chance
from pipelines.primitives.tree import EMPTY, Draft


class Drafter(Protocol):
    """Guesses the next tokens of one run. Made per run, dropped after."""

    def propose(self, committed: list[int], room: int, chance: Chance) -> Draft:
        """A draft below the last of the `committed` tokens (at least one), of depth `room` at most, which may be 0."""
        ...

    def observe(self, draft: Draft, scores: Scores, verdict: Verdict, chance: Chance) -> None:
        """Learn what the target said. Called every round, for the prefill's empty draft too, after the commit."""

    def explain(self) -> dict[str, np.ndarray]:
        """What this drafter alone can tell of the last round; asked after the clock has stopped."""
        return {}


class NoDraft(Drafter):
    """Vanilla autoregression."""

    def propose(self, committed: list[int], room: int, chance: Chance) -> Draft:
        return EMPTY
