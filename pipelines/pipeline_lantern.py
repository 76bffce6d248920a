"""LANTERN: a guess may borrow probability from the codes that look like it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pipelines.decoding.relaxed import RelaxedRule, best_residual, normalised
from pipelines.decoding.rules import Node


RESIDUALS = ("paper", "gstar", "released")
ROWS = 1024  # codes whose neighbours are summed at once, for large vocabularies


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
