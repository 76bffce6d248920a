"""Grouped speculative decoding: a guess stands for its group of tokens that are about as likely and look alike."""

import weakref
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipelines.base import ARImagePipeline
from pipelines.decoding.drafters import Drafter
from pipelines.decoding.jacobi_drafter import JacobiDrafter
from pipelines.decoding.relaxed import RelaxedRule, best_residual
from pipelines.decoding.rules import Node, Rule
from pipelines.models.protocol import Session
from pipelines.pipeline_jacobi import WindowSettings
from pipelines.settings import knob


RESIDUALS = ("token", "gstar")

# By transformer: the last embedding gap asked for, and which tokens lie within it.
_alike: "weakref.WeakKeyDictionary[nn.Module, tuple[float, Tensor]]" = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class GroupSettings(WindowSettings):
    group: int = knob(
        14,
        low=2,
        high=50,
        step=2,
        label="Group",
        help="Most tokens that stand for one another: half of them up to as likely as the guess, half from it on.",
    )
    p_gap: float = knob(
        0.15,
        low=0.0,
        high=1.0,
        step=0.01,
        label="Probability gap",
        help="Tokens whose probability differs by more leave the group.",
    )
    embed_gap: float = knob(
        0.5,
        low=0.0,
        high=100.0,
        step=0.1,
        label="Embedding gap",
        help="Tokens whose embedding is farther off, by squared distance, leave the group.",
    )
    residual: str = knob(
        "token",
        choices=RESIDUALS,
        label="Replacement",
        help="What a refused guess is replaced from: p beyond q, as in the paper, or the law that comes nearest to p.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group % 2:
            raise ValueError(f"`group` must be an even whole number from 2 to 50, got {self.group}.")


@dataclass
class GroupRule(RelaxedRule):
    """f(x) = min(1, p(C) / q(C)), C being the group of x: its token is kept where the group as a whole is.

    Tokens sorted by p, C is the ranks from `half` below that of x to `half` - 1 above it, without those whose p
    differs by more than p_gap and those not `alike`. alike: [V, V] bool. So et al. 2025, arXiv:2508.07747; the
    released code uses no group at all where it would begin below the first rank, this one cuts it there.

    residual_kind: "token" is norm(max(p - q, 0)), as in the paper. "gstar" is G*.
    """

    alike: Tensor
    half: int
    p_gap: float
    residual_kind: str = "token"

    def group(self, p: Tensor, x: int) -> Tensor:
        """Tokens of C, by p."""
        order = p.argsort(stable=True)
        rank = int((order == x).nonzero())
        near = order[max(0, rank - self.half) : rank + self.half]
        return near[self.alike[x, near] & ((p[near] - p[x]).abs() <= self.p_gap)]

    def chance(self, p: Tensor, q: Tensor, x: int, at: Node) -> float:
        group = self.group(p, x)
        return min(1.0, float(p[group].sum()) / float(q[group].sum()))

    def kept(self, p: Tensor, q: Tensor, at: Node) -> Tensor:
        order = p.argsort(stable=True)
        sides = (self.half, self.half - 1)  # beyond both ends are tokens without mass
        near = F.pad(order, sides).unfold(0, 2 * self.half, 1)  # [V, G] the group of each token, by its rank
        masses = F.pad(torch.stack([p, q])[:, order], sides).unfold(1, 2 * self.half, 1)  # [2, V, G]
        within = self.alike[order[:, None], near] & ((masses[0] - p[order, None]).abs() <= self.p_gap)
        p_group, q_group = (masses * within).sum(-1)
        share = (p_group / q_group).clamp(max=1).nan_to_num(0)
        return q * torch.empty_like(q).index_copy(0, order, share)

    def residual(self, p: Tensor, q: Tensor, x: int, at: Node) -> Tensor:
        return best_residual(p, q) if self.residual_kind == "token" else super().residual(p, q, x, at)


def group_rule(pipe: ARImagePipeline, settings: GroupSettings) -> GroupRule:
    embedding, gap = pipe.model.token_embedding().float(), settings.embed_gap  # [V, d]
    known = _alike.get(pipe.transformer)
    if known is None or known[0] != gap or known[1].device != embedding.device:
        alike = torch.cdist(embedding, embedding).square() <= gap
        known = _alike[pipe.transformer] = gap, alike.fill_diagonal_(True)
    return GroupRule(known[1], settings.group // 2, settings.p_gap, settings.residual)


class GSDPipeline(ARImagePipeline):
    """Text to image with fewer passes, not lossless: grouped speculative decoding on Jacobi guesses.

    As speculative Jacobi decoding, but a guess is kept with the chance of its group, tokens that are about as likely
    and whose embeddings are near. Pictures then follow the target's law only up to swaps inside such groups. So et al.
    2025, arXiv:2508.07747. How near embeddings must be differs by model; the default is that of Lumina-mGPT.

    >>> import torch
    >>> from pipelines import GSDPipeline
    >>> pipe = GSDPipeline.from_pretrained("assets/emoji-scenes")
    >>> trace = pipe("a penguin on snow", generator=torch.Generator().manual_seed(7), group=14).traces[0]
    >>> trace.complete, trace.nfe < 256
    (True, True)
    """

    Settings = GroupSettings

    def method(self, settings: GroupSettings, session: Session) -> tuple[Drafter, Rule]:
        return JacobiDrafter(session.layout, settings.window, settings.start), group_rule(self, settings)
