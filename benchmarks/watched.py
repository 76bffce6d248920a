"""Jacobi runs beside which it is worked out what other laws would have made of each guess.

All laws are of the same passes, so they are compared guess by guess.
"""

import numpy as np
import torch
from torch import Tensor

from pipelines.decoding.drafters import Drafter
from pipelines.decoding.growth import Growth
from pipelines.decoding.history import Pass
from pipelines.decoding.jacobi_drafter import JacobiDrafter
from pipelines.decoding.recall import parting, recalled
from pipelines.decoding.verify import Verdict
from pipelines.models.protocol import Scores
from pipelines.pipeline_sjd import SJDPipeline
from pipelines.pipeline_sjd_vp import SJDVPPipeline
from pipelines.primitives.chance import Chance
from pipelines.primitives.tree import Draft
from visualize.past import STEPS


GROWTHS = {f"bayes, N = {steps}": steps for steps in STEPS}
LAWS = ("newest", *GROWTHS, "mean of all", "recall")  # that a guess could have been drawn from
NOTES = (*LAWS, "newest had the left token", "some pass had the left token")


class Watched(Drafter):
    """A Jacobi drafter, and beside it sum min(p, q) of every checked guess, had it been drawn from another q."""

    def __init__(self, drafter: JacobiDrafter) -> None:
        self.drafter = drafter
        self.growths = {name: Growth(steps, 1.0, 0.5, 0, "bayes") for name, steps in GROWTHS.items()}
        self.fused: dict[str, Tensor] = {}
        self.rows: list[list[float]] = []

    def propose(self, committed: list[int], room: int, chance: Chance) -> Draft:
        return self.drafter.propose(committed, room, chance)

    def observe(self, draft: Draft, scores: Scores, verdict: Verdict, chance: Chance) -> None:
        first, kept = self.drafter.final, len(verdict.path) + 1
        passes = list(self.drafter.history.passes)
        line = {one.first + at: token for one in passes for at, token in enumerate(one.placed)}
        line |= {first + at: token for at, token in enumerate(draft.tokens)}
        self.rows = [
            self.overlaps(scores.probs[at], first + at, at, passes, line) for at in range(min(kept, len(draft)))
        ]
        self.drafter.observe(draft, scores, verdict, chance)
        self.fused = {name: growth(scores, first, kept) for name, growth in self.growths.items()}

    def overlaps(self, p: Tensor, position: int, at: int, passes: list[Pass], line: dict[int, int]) -> list[float]:
        """In the order of `NOTES`; nan where no pass has seen the position."""
        seen = [one for one in passes if one.first <= position < one.end]
        if not seen:
            return [float("nan")] * len(NOTES)
        past = torch.stack([one.scores.probs[position - one.first] for one in seen])
        laws = [past[-1], *(laws[at] for laws in self.fused.values()), past.mean(0), recalled(passes, position, line)]
        alike = [parting(one, position, line) < position - 1 for one in seen]
        return [float(torch.minimum(p, q).sum()) for q in laws] + [float(alike[-1]), float(any(alike))]

    def explain(self) -> dict[str, np.ndarray]:
        return self.drafter.explain() | {"overlaps": np.array(self.rows, np.float32).reshape(-1, len(NOTES))}


class WatchedSJD(SJDPipeline):
    def method(self, settings, session):
        drafter, rule = super().method(settings, session)
        return Watched(drafter), rule


class WatchedSJDVP(SJDVPPipeline):
    def method(self, settings, session):
        drafter, rule = super().method(settings, session)
        return Watched(drafter), rule


KINDS = {"sjd": WatchedSJD, "sjdvp": WatchedSJDVP}
