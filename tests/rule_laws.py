"""One round of a rule, worked out twice: by walking every branch of the real code, and by the textbook's sums."""

import torch
from conftest import branches, laws_only
from torch import Tensor

from pipelines.decoding.rules import Node, Rule
from pipelines.decoding.verify import walk
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import one_hot
from pipelines.primitives.tree import Draft, chain


def dirichlet(seed: int, *shape: int) -> Tensor:
    """Random laws [.., V] float64, uneven."""
    dice = torch.Generator().manual_seed(seed)
    masses = torch.rand(*shape, generator=dice, dtype=torch.float64).log().neg() ** 2
    return masses / masses.sum(-1, keepdim=True)


CERTAIN = torch.ones(1, dtype=torch.float64)


def node(depth: int = 1, law: Tensor = CERTAIN) -> Node:
    """A place in a draft of code 0, for rules that look at little but the depth. law: [V] the target's at the root."""
    return Node(depth, depth - 1, chain([0] * depth, law.expand(depth, -1)), laws_only(law[None]), 0.0, 0.0)


def siblings_law(rule: Rule, p: Tensor, q: Tensor, count: int) -> Tensor:
    """[V] exact law of the first token under `count` children drawn from q without replacement."""

    def run(chance: Chance) -> int:
        tokens, rows, law = [], [], q
        for _ in range(count):
            rows.append(law)
            tokens.append(int(chance.categorical(law[None])))
            law = law * (1 - one_hot(tokens[-1:], q)[0])
            law = law / law.sum()
        return first_token(rule, p, Draft(tokens, [-1] * count, torch.stack(rows)), chance)

    return exact(run, p)


def first_token_law(rule: Rule, p: Tensor, q: Tensor) -> Tensor:
    """[V] exact law of the first token under one guess drawn from q; a one-hot q makes it certain."""
    return siblings_law(rule, p, q, 1)


def first_token(rule: Rule, p: Tensor, draft: Draft, chance: Chance) -> int:
    verdict = walk(rule, draft, laws_only(p.expand(1 + len(draft), -1)), chance, 0.0)
    return draft.tokens[verdict.path[0]] if verdict.path else verdict.token


def exact(run, like: Tensor) -> Tensor:
    found = torch.zeros_like(like)
    for token, weight in branches(run):
        found[token] += weight
    return found


def law_by_sums(f: list[float], residuals: list[list[float]], q: Tensor) -> Tensor:
    """[V] q(y) f(y) plus, for each x, q(x) (1 - f(x)) times what replaces x. residuals: one law per refused x."""
    f, residuals = torch.tensor(f, dtype=q.dtype), torch.tensor(residuals, dtype=q.dtype)
    return q * f + ((q * (1 - f))[:, None] * residuals).sum(0)


def shares(masses: list[float], p: list[float]) -> list[float]:
    """Positive parts in proportion; p where there are none."""
    positive = [max(0.0, mass) for mass in masses]
    return [mass / sum(positive) for mass in positive] if sum(positive) > 0 else p
