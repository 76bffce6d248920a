"""Guesses that lean on growth: a token whose probability rose pass after pass is drafted more often.

SJD-VP, arXiv:2603.27115. What a gain is measured against, the top-k restriction and "score" are our reading of it.
"""

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pipelines.decoding.coupling import Coupling
from pipelines.decoding.history import PASSES, History
from pipelines.decoding.jacobi_drafter import JacobiDrafter
from pipelines.models.protocol import Scores
from pipelines.primitives.chance import Chance
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import Draft


FUSIONS = ("bayes", "score", "none")
Q_MODES = ("fused", "raw")
TINY = 1e-12  # probability added under the logarithm


@dataclass(frozen=True)
class Gain:
    """What the last passes say of tokens, each [...]: S, how far they rose, and M, whether in each of N passes."""

    score: Tensor
    grew: Tensor


@dataclass
class Growth:
    """A redraft: p' in proportion to p exp(M S), so that what grew N times in a row is likelier still.

    M is true where the last N changes were all increases. S = gain (log now - log past), past being the mean of the
    last N laws, the k-th newest weighing decay^(k-1). Both look at the target's laws before top-k and top-p, for a
    token that comes back into the top-k has not grown from 0. steps: N. top_k: M is 0 for all but the k likeliest
    tokens, 0 spares all. fusion: "bayes" is as above; "score" is exp(M S) over the tokens that M may be true for and p
    gives mass; "none" is p. p' is a function of the past, and hence as q lossless.
    """

    steps: int
    gain: float
    decay: float
    top_k: int
    fusion: str

    def __post_init__(self) -> None:
        self.past: deque[tuple[int, Tensor]] = deque(maxlen=self.steps)  # oldest first: position of row 0, [R, V]
        self.target = torch.empty(0, 0)  # [n, V] p of the last pass, where p' was given
        # By the first position of a pass's p': [n, 2] what it was divided by, and the least p that M may be true for.
        self.told: dict[int, Tensor] = {}

    def __call__(self, scores: Scores, first: int, kept: int) -> Tensor:
        start, self.target, now = first + kept, scores.probs[kept:], scores.guided[kept:]
        past = [rows[start - position :] for position, rows in reversed(self.past)]
        self.past.append((first, scores.guided))
        bar = self.bar(self.target)
        masses = self.target if self.fusion != "score" else self.may_grow(self.target, bar).to(now.dtype)
        full = len(past[-1]) if len(past) == self.steps else 0  # rows with a past of N laws
        if full and self.fusion != "none":
            gain = self.measure(now[:full], [rows[:full] for rows in past])
            grew = gain.grew & self.may_grow(self.target[:full], bar[:full])
            masses = torch.cat([masses[:full] * torch.where(grew, gain.score, 0).exp(), masses[full:]])
        total = masses.sum(-1, keepdim=True)
        self.told = dict([*self.told.items(), (start, torch.cat([total, bar], 1))][-2 * PASSES :])
        return masses / total

    def measure(self, now: Tensor, past: list[Tensor]) -> Gain:
        """now: [...]; past: at least one like it, the newest first. M is false where they are fewer than N."""
        grew = torch.full_like(now, len(past) == self.steps, dtype=torch.bool)
        mean = torch.zeros_like(now)
        for age, (late, early) in enumerate(zip([now, *past], past)):
            grew &= late > early
            mean.add_(early, alpha=self.decay**age)
        mean /= sum(self.decay**age for age in range(len(past)))
        return Gain(self.gain * torch.log((now + TINY) / (mean + TINY)), grew)

    def bar(self, target: Tensor) -> Tensor:
        """[n, 1] the k-th largest of each row; ties with it pass."""
        if not 0 < self.top_k < target.shape[-1]:
            return torch.zeros_like(target[:, :1])
        return target.topk(self.top_k, dim=-1).values[:, -1:]

    def may_grow(self, target: Tensor, bar: Tensor) -> Tensor:
        return (target >= bar) & (target > 0)

    def notes(self, history: History) -> dict[str, np.ndarray]:
        """For the tokens and passes of `History.notes`: what the redraft made of them.

        growth_p: [m, I, K] p; growth_s: S, nan where there are less than N past passes; growth_m: M; growth_fused: p',
        nan where no guess was drawn. growth_total: [m, I] what p exp(M S) was divided by; growth_bar: [m, I] the least
        p that M may be true for.
        """
        tokens = history.tokens()
        guided = history.columns(tokens, lambda one: (one.first, one.scores.guided))
        target = history.columns(tokens, lambda one: (one.first, one.scores.probs))
        fused = history.columns(tokens, lambda one: (one.final, one.laws))
        both = torch.arange(2, device=tokens.device).expand(len(tokens), 2)
        total, bar = history.columns(both, lambda one: (one.final, self.told[one.final])).unbind(-1)
        none = torch.full_like(guided, torch.nan)
        gain = self.measure(
            guided, [torch.cat([none[:, :age], guided[:, :-age]], 1) for age in range(1, self.steps + 1)]
        )
        notes = {
            "growth_p": target,
            "growth_s": gain.score,
            "growth_m": gain.grew & self.may_grow(target, bar[..., None].nan_to_num(0)),
            "growth_fused": fused,
            "growth_total": total,
            "growth_bar": bar,
        }
        return {name: array[:, -PASSES:].cpu().numpy() for name, array in notes.items()}


class GrowthDrafter(JacobiDrafter):
    """Draws guesses from p' of a `Growth`, which also is their q."""

    def __init__(self, layout: Layout, window: int, start: str, growth: Growth, couple: Coupling) -> None:
        super().__init__(layout, window, start, growth, couple)
        self.growth = growth

    def explain(self) -> dict[str, np.ndarray]:
        return super().explain() | self.growth.notes(self.history)


class RawGrowthDrafter(GrowthDrafter):
    """Draws guesses from p', but has them judged as if from p. Not lossless: what p' favours is kept too often."""

    def propose(self, committed: list[int], room: int, chance: Chance) -> Draft:
        draft = super().propose(committed, room, chance)
        raw = self.growth.target[: len(draft)]
        return replace(draft, q=torch.cat([raw, draft.q[len(raw) :]])) if len(draft) else draft
