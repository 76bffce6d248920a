"""Walk a draft tree against the target's verdict. Knows nothing of models, images or devices."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pipelines.decoding.rules import Node, Rule
from pipelines.models.protocol import Scores
from pipelines.primitives.chance import Chance
from pipelines.primitives.tree import Draft


@dataclass(frozen=True)
class Verdict:
    """What became of a draft: the kept path and the token that follows it."""

    path: list[int]
    """[n] kept nodes, depth 1 first."""
    token: int
    """Bonus token after a path that ends in a leaf, else the one drawn in place of the refused."""
    p: list[float]
    """[N] target probability each node was judged by, earlier siblings refused; nan where never judged."""
    accept_prob: list[float]
    """[N], nan where never judged."""
    dice: list[float]
    """[N], nan where never judged."""


class Verifier(Protocol):
    """Judges drafts, one after another, of one run."""

    def __call__(self, draft: Draft, scores: Scores, chance: Chance) -> Verdict: ...

    def explain(self) -> dict[str, np.ndarray]:
        """What it alone can tell of the last round; asked after the clock has stopped."""
        return {}


class Walk(Verifier):
    """`walk` by one rule through a run, remembering how likely the target held the last committed token."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.root_prob = 0.0

    def __call__(self, draft: Draft, scores: Scores, chance: Chance) -> Verdict:
        verdict = walk(self.rule, draft, scores, chance, self.root_prob)
        row = verdict.path[-1] + 1 if verdict.path else 0
        self.root_prob = float(scores.probs[row, verdict.token])
        return verdict

    def explain(self) -> dict[str, np.ndarray]:
        return self.rule.explain()


def walk(rule: Rule, draft: Draft, scores: Scores, chance: Chance, root_prob: float) -> Verdict:
    """From the root try the children in the order they were drawn; descend into the first one kept.

    Where none is kept, draw from what the refusals left of the target's law: at a leaf, that is all of it. So chain,
    tree, residual and bonus token are one case. root_prob: see `Node`.
    """
    judged_by, accept_prob, dice = ([math.nan] * len(draft) for _ in range(3))
    path: list[int] = []
    row, p, lent = 0, scores.probs[0], 0.0
    while True:
        for node in draft.children[row]:
            x, q = draft.tokens[node], draft.q[node]
            at = Node(len(path) + 1, node, draft, scores, lent, root_prob)
            judged_by[node], q_x = float(p[x]), float(q[x])
            assert q_x > 0, f"node {node} cannot have been drawn: its own law gives token {x} no mass"
            accept_prob[node] = rule.accept(p, q, x, at)
            lent += max(0.0, accept_prob[node] - min(1.0, judged_by[node] / q_x))
            kept, dice[node] = chance.bernoulli(accept_prob[node])
            if kept:
                path.append(node)
                row, p = node + 1, scores.probs[node + 1]
                break
            p = rule.residual(p, q, x, at)
        else:
            token = int(chance.categorical(p[None]))
            return Verdict(path, token, judged_by, accept_prob, dice)
