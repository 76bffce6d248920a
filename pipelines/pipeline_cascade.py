"""CASCADE: a guess may borrow probability from the guesses that leave the target in a like state."""

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from diffusers.utils import logging
from torch import Tensor

from pipelines import model_folder
from pipelines.decoding.drafters import Drafter
from pipelines.decoding.relaxed import best_residual
from pipelines.decoding.rules import ExactRule, Node, Rule
from pipelines.models.protocol import Scores, Session
from pipelines.pipeline_speculative import DraftPipeline, DraftSettings
from pipelines.primitives.distributions import COLDEST
from pipelines.primitives.tree import ROOT
from pipelines.settings import knob


logger = logging.get_logger(f"diffusers.{__name__}")

SWITCH = ("on", "off")


@dataclass(frozen=True)
class CascadeSettings(DraftSettings):
    draft: str = knob(
        "static",
        choices=("chain", "static", "dynamic"),
        label="Draft",
        help="One guess a square; a tree of fixed shape, drawn; or a tree that grows where the head is sure.",
    )
    tau_level: float = knob(
        0.9,
        low=-1.0,
        high=1.0,
        step=0.01,
        label="Alike in a level",
        help="Least similarity of the target's states at which one guess lends to another of its level.",
    )
    tau_parent: float = knob(
        0.625,
        low=-1.0,
        high=1.0,
        step=0.01,
        label="Alike across levels",
        help="Least similarity of a guess's state and its parent's at which the parent lends to it.",
    )
    delta: float = knob(
        0.5,
        low=0.0,
        high=1.0,
        step=0.01,
        label="Budget δ",
        help="Most probability a guess may borrow; 0 is exact.",
    )
    budget: str = knob(
        "test",
        choices=("test", "step"),
        label="Budget for",
        help="Each test afresh, as the paper reads; or one pass in all, which bounds how far the output can stray.",
    )
    scope: str = knob(
        "level",
        choices=("level", "siblings"),
        label="Who may lend",
        help="Every guess for the same square, whatever came before it; or children of the same parent.",
    )
    interchange: str = knob("on", choices=SWITCH, label="Interchangeable guesses", help="Guesses of a level lend.")
    converge: str = knob("on", choices=SWITCH, label="Convergent guesses", help="A parent lends.")
    residual: str = knob(
        "strict",
        choices=("strict", "gstar"),
        label="After a refusal",
        help="Two ways to work out one law: no guess is kept less often here than by the exact rule.",
    )


@dataclass(frozen=True)
class Loan:
    """What `lender`, a node of the draft or -1 for the root, offers to a guess, and what of that moves to it."""

    lender: int
    offered: float
    used: float


def similarities(hidden: Tensor, mean: Tensor | None) -> Tensor:
    """[n, n] cosines between states [n, D], less their model's mean [D] where it is given; 0 for a state of zeros."""
    states = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    states = F.normalize(states if mean is None else states - mean.to(states), dim=-1)
    return states @ states.T


@dataclass
class CascadeRule(ExactRule):
    """f(x) = min(1, (p(x) + m) / q(x)): guesses of like states lend x the probability m, at most the budget δ.

    The state of a guess is what the target's head reads at its own row, the conditional one, less the model's `mean`
    [D]; None compares raw states, which all point one way. First lend the guesses for the same square with a cosine
    of at least `tau_level` to x, the most alike first: each what p gives its token, the last a fraction of that. Then
    the parent, where its cosine is at least `tau_parent`: what the target gave the parent's own token, taken from all
    other tokens in proportion. So the relaxed target p_R differs from p by a total variation of m.

    How far the output strays is another matter. With `budget` "test" it may be more than δ, for p_R follows the
    guess. With "step" the chances lent in one pass together stay within δ, and so does the law of what it commits. A
    parent lends nothing across the start of a row, where it is no neighbour. At temperature 0 a guess is kept where
    its token leads p_R; with a budget a step, where its chance is 1.

    CASCADE, arXiv:2605.07230, sums the probability of similar nodes under a budget. The order, the fraction and what
    a parent lends are ours.

    Notes of a round in which k guesses were judged, one entry each: its node (`judged`), m (`moved`), what its chance
    exceeds the exact one by (`infidelity`; the sum is what the pass spent), what its parent may lend (`parent_offer`)
    and [k, N] what its p gives each node's token (`offers`). An entry a loan, in the order of spending: which of the k
    borrows (`borrower`), the node that lends, -1 for the root (`lender`), what moved (`lent`). Cosines of root and
    nodes, [1 + N, 1 + N] float16 (`similarity`), and whether they are of centred states (`centred`).
    """

    settings: CascadeSettings
    session: Session
    mean: Tensor | None
    judged: list[tuple[Tensor, Tensor, int, Node]] = field(default_factory=list, init=False, repr=False)
    compared: tuple[Scores, list[list[float]]] | None = field(default=None, init=False, repr=False)
    root_position: int = field(default=0, init=False, repr=False)

    def accept(self, p: Tensor, q: Tensor, x: int, at: Node) -> float:
        self.judged.append((p, q, x, at))
        # Kept, for the notes are written when the session has moved on.
        self.root_position = self.session.length - self.session.prefix_hidden.shape[1]
        return self.chance(p, q, x, at)

    def chance(self, p: Tensor, q: Tensor, x: int, at: Node) -> float:
        """f(x)."""
        p_x, q_x = float(p[x]), float(q[x])
        strict = min(1.0, p_x / q_x)
        if strict == 1:
            return strict
        granted = min(1.0, (p_x + sum(loan.used for loan in self.loans(p, x, at))) / q_x)
        if self.settings.budget == "step":
            granted = min(granted, strict + max(0.0, self.settings.delta - at.lent))
        if self.session.warp.temperature < COLDEST:
            return float(granted == 1 or (self.settings.budget == "test" and granted > 0.5))
        return granted

    def residual(self, p: Tensor, q: Tensor, x: int, at: Node) -> Tensor:
        if self.settings.residual == "strict":
            return super().residual(p, q, x, at)
        kept = torch.minimum(p, q)
        kept[x] = q[x] * self.chance(p, q, x, at)
        return best_residual(p, kept)

    def loans(self, p: Tensor, x: int, at: Node) -> list[Loan]:
        """What moves to x, in the order of spending."""
        loans, left, held = [], self.settings.delta, float(p[x])
        if lenders := self.interchangeable(at):
            for lender, offered in zip(lenders, p[[at.draft.tokens[node] for node in lenders]].tolist()):
                loans.append(Loan(lender, offered, min(offered, left)))
                left -= loans[-1].used
                held += loans[-1].used
        if self.converges(at):
            offered = min(self.parent_offer(at), max(0.0, 1 - held))
            loans.append(Loan(at.draft.parents[at.index], offered, min(offered, left)))
        return loans

    def interchangeable(self, at: Node) -> list[int]:
        """Nodes of the level that may stand in for this one, the most alike first, one for each other token."""
        if self.settings.interchange == "off":
            return []
        draft, cosines = at.draft, self.cosines(at.scores)[at.index + 1]
        alike = [
            node
            for node, depth in enumerate(draft.depth)
            if depth == at.depth
            and draft.tokens[node] != draft.tokens[at.index]
            and cosines[node + 1] >= self.settings.tau_level
            and (self.settings.scope == "level" or draft.parents[node] == draft.parents[at.index])
        ]
        first: dict[int, int] = {}
        for node in sorted(alike, key=lambda node: -cosines[node + 1]):
            first.setdefault(draft.tokens[node], node)
        return list(first.values())

    def converges(self, at: Node) -> bool:
        """Whether the parent may stand in for this node."""
        if self.settings.converge == "off":
            return False
        cosine = self.cosines(at.scores)[at.index + 1][at.draft.parents[at.index] + 1]
        return cosine >= self.settings.tau_parent and self.parent_offer(at) > 0

    def parent_offer(self, at: Node) -> float:
        """What the target gave the parent's own token, before any refusal; 0 across the start of a row."""
        parent = at.draft.parents[at.index]
        if self.session.layout.left(self.root_position + at.depth) is None:
            return 0.0
        if parent == ROOT:
            return at.root_prob
        return float(at.scores.probs[at.draft.parents[parent] + 1, at.draft.tokens[parent]])

    def cosines(self, scores: Scores) -> list[list[float]]:
        """[1 + N][1 + N], worked out once a round, and compared as exactly as they are noted."""
        if self.compared is None or self.compared[0] is not scores:
            self.compared = scores, similarities(scores.hidden[0], self.mean).half().tolist()
        return self.compared[1]

    def explain(self) -> dict[str, np.ndarray]:
        tests, self.judged = self.judged, []
        if not tests:
            return {}
        loans = [(index, loan) for index, (p, _, x, at) in enumerate(tests) for loan in self.loans(p, x, at)]
        moved = np.zeros(len(tests), np.float32)
        np.add.at(moved, [index for index, _ in loans], [loan.used for _, loan in loans])
        beyond = [max(0.0, self.chance(p, q, x, at) - min(1.0, float(p[x]) / float(q[x]))) for p, q, x, at in tests]
        return {
            "judged": np.array([at.index for *_, at in tests], np.int32),
            "moved": moved,
            "infidelity": np.array(beyond, np.float64),
            "parent_offer": np.array([self.parent_offer(at) for *_, at in tests], np.float32),
            "offers": torch.stack([p[at.draft.tokens] for p, *_, at in tests]).float().cpu().numpy(),
            "borrower": np.array([index for index, _ in loans], np.int32),
            "lender": np.array([loan.lender for _, loan in loans], np.int32),
            "lent": np.array([loan.used for _, loan in loans], np.float32),
            "similarity": np.array(self.cosines(tests[0][3].scores), np.float16),
            "centred": np.array([self.mean is not None]),
        }


class CascadePipeline(DraftPipeline):
    """Text to image with fewer passes still, not lossless: guesses that leave the target in a like state are as good.

    A static tree of guesses is judged as by the exact rule, but a guess counts with the probability of those that the
    target's own states show to be interchangeable with it, and of its parent where the two converge, up to a budget.
    States are compared less the model's mean, which `python -m training.feature_mean` keeps beside the weights; a
    model without one is compared raw, with a warning, and `tau_level` and `tau_parent` mean raw cosines then. CASCADE,
    arXiv:2605.07230; see `CascadeRule` for what is reconstructed.

    >>> import torch
    >>> from pipelines import CascadePipeline
    >>> pipe = CascadePipeline.from_pretrained("assets/emoji-scenes")
    >>> trace = pipe("a penguin on snow", generator=torch.Generator().manual_seed(7), delta=0.3).traces[0]
    >>> trace.complete, trace.nfe < 256
    (True, True)
    """

    Settings = CascadeSettings

    def method(self, settings: CascadeSettings, session: Session) -> tuple[Drafter, Rule]:
        mean = model_folder.origin_of(self.transformer).feature_mean
        if mean is None:
            logger.warning("States are compared raw: the model has no mean, which `training.feature_mean` writes.")
        return self.drafter(settings, session), CascadeRule(settings, session, mean)
