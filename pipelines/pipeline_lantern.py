"""LANTERN: a guess may borrow probability from the codes that look like it."""

import weakref
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from pipelines.base import ARImagePipeline
from pipelines.decoding.relaxed import RelaxedRule, best_residual, normalised
from pipelines.decoding.rules import Node
from pipelines.models.codebook import neighbours
from pipelines.pipeline_speculative import DraftPipeline, DraftSettings
from pipelines.settings import knob


RESIDUALS = ("paper", "gstar", "released")
KEPT_MASSES = 32  # nearest codes of a guess whose masses a round's notes keep
ROWS = 1024  # codes whose neighbours are summed at once, for large vocabularies

# Neighbours of every code, nearest first, by image tokenizer: as many as were ever asked for.
_tables: "weakref.WeakKeyDictionary[nn.Module, Tensor]" = weakref.WeakKeyDictionary()


def nearest_codes(pipe: ARImagePipeline, count: int) -> Tensor:
    """[V, at least `count` or all] other codes of a pipeline's codebook, nearest first; worked out once."""
    codebook, table = pipe.model.codebook(), _tables.get(pipe.vqvae)
    count = min(count, len(codebook) - 1)
    if table is None or table.shape[1] < count or table.device != codebook.device:
        table = _tables[pipe.vqvae] = neighbours(codebook, count)
    return table


@dataclass
class LanternRule(RelaxedRule):
    """A code may borrow what p gives its nearest neighbours: f(x) = min(1, p_A(x) / q(x)).

    A is the longest run of the `count` nearest codes, nearest first, whose p together stays within the budget `bound`;
    p_A moves their mass to x. Jang et al. 2025, arXiv:2410.03355. nearest: [V, count + 1] codes by distance, the code
    itself left out; fewer where there are no more codes.

    residual_kind: "paper" is norm(max(p_A - q, 0)), for a one-hot q p without x and A. "gstar" is G*, here the exact
    rule's own, because p_A(x) >= p(x). "released" is what the released code does (ea_model_llamagen.py): where A is
    of any mass it turns to the count + 1 nearest: they leave p where q is one-hot, else q, so that they keep
    all their mass.
    """

    nearest: Tensor
    count: int
    bound: float
    residual_kind: str = "paper"

    def budget(self, p_x: Tensor) -> Tensor | float:
        """Most that codes of probability `p_x` [...] may borrow."""
        return self.bound

    def chance(self, p: Tensor, q: Tensor, x: int, at: Node) -> float:
        borrowed = float(p[self.lenders(p, x)].sum())
        return min(1.0, (float(p[x]) + borrowed) / float(q[x]))

    def lenders(self, p: Tensor, x: int) -> Tensor:
        """A: the neighbours that x borrows from, nearest first."""
        near = self.nearest[x, : self.count]
        return near[p[near].cumsum(0) <= self.budget(p[x])]

    def kept(self, p: Tensor, q: Tensor, at: Node) -> Tensor:
        borrowed = []
        for codes in torch.arange(len(p), device=p.device).split(ROWS):
            near = p[self.nearest[codes, : self.count]]
            within = near.cumsum(-1) <= torch.as_tensor(self.budget(p[codes, None]), dtype=p.dtype, device=p.device)
            borrowed.append((near * within).sum(-1))
        return torch.minimum(q, p + torch.cat(borrowed))

    def residual(self, p: Tensor, q: Tensor, x: int, at: Node) -> Tensor:
        if self.residual_kind == "gstar":
            return best_residual(p, q)
        lenders = self.lenders(p, x)
        if self.residual_kind == "paper":
            moved = p.index_fill(0, lenders, 0)
            moved[x] += p[lenders].sum()
            return normalised((moved - q).clamp(min=0), p)
        near = self.nearest[x, : self.count + 1] if p[lenders].any() else lenders
        if float(q[x]) == 1:
            return normalised(p.index_fill(0, near, 0).index_fill(0, near.new_tensor([x]), 0), p)
        return normalised((p - q.index_fill(0, near, 0)).clamp(min=0), p)

    def explain(self) -> dict[str, np.ndarray]:
        tests = self.judged
        notes = super().explain()
        if not tests:
            return notes
        at = tests[0][-1]
        laws = at.scores.probs[[parent + 1 for parent in at.draft.parents]]
        laws[[at.index for *_, at in tests]] = torch.stack([p for p, *_ in tests])
        near = self.nearest[at.draft.tokens, : min(self.count, KEPT_MASSES)]
        return notes | {"masses": laws.gather(1, near).cumsum(1).to(torch.float16).cpu().numpy()}


@dataclass(frozen=True)
class NeighbourSettings(DraftSettings):
    neighbours: int = knob(
        64, low=1, high=1000, step=1, label="Neighbours k", help="Nearest codes that a guess may borrow from."
    )
    residual: str = knob(
        "paper",
        choices=RESIDUALS,
        label="Residual",
        help="Law of a refused square: the paper's, the nearest to the target's (G*), or the released code's.",
    )


@dataclass(frozen=True)
class LanternSettings(NeighbourSettings):
    delta: float = knob(
        0.1, low=0.0, high=1.0, step=0.01, label="Budget δ", help="Most probability a guess may borrow; 0 is lossless."
    )


class LanternPipeline(DraftPipeline):
    """Text to image with fewer passes still, not lossless: codes that look alike stand in for one another.

    A guess is kept as if it had the probability of its nearest codes too, as far as that stays within a budget δ. The
    law of a square moves by at most δ for each guess tried there. Jang et al. 2025, arXiv:2410.03355, which drafts
    dynamic trees (`draft="dynamic"`).

    >>> import torch
    >>> from pipelines import LanternPipeline
    >>> pipe = LanternPipeline.from_pretrained("assets/emoji-scenes")
    >>> trace = pipe("a penguin on snow", generator=torch.Generator().manual_seed(7), delta=0.2).traces[0]
    >>> trace.complete, trace.nfe < 256
    (True, True)
    """

    Settings = LanternSettings

    def rule(self, settings: LanternSettings) -> LanternRule:
        nearest = nearest_codes(self, settings.neighbours + 1)
        return LanternRule(nearest, settings.neighbours, settings.delta, settings.residual)
