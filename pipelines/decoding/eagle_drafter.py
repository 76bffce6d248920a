"""Drafts of a drafting head: a chain, a tree of fixed shape, or a tree that grows where the head is sure.

Li et al. 2024, arXiv:2401.15077 (EAGLE-1: sampled children) and arXiv:2406.16858 (EAGLE-2: the likeliest children).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pipelines.decoding.drafters import Drafter
from pipelines.decoding.verify import Verdict
from pipelines.models.protocol import Scores, Session
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import one_hot
from pipelines.primitives.tree import EMPTY, ROOT, Draft, StaticTree


class Guesser(Protocol):
    """One run of a head: takes in what the target has said, then goes on from its own guesses."""

    def extend(self, tokens: list[int], features: Tensor) -> Tensor:
        """[1, V] law of the token after the last of `tokens`.

        features: [R, n, D] of the target's next n rows; tokens: [n] what follows each of them, 0 for text.
        """
        ...

    def step(self, tokens: list[int], parents: list[int], depth: int) -> Tensor:
        """[m, V] laws of what follows m nodes of depth `depth`; parents: their rows in the call before."""
        ...


class EagleDrafter(Drafter):
    """Listens to the target on behalf of a head. How the tree grows is what its two children differ in."""

    def __init__(self, guesser: Guesser, session: Session) -> None:
        self.guesser, self.session = guesser, session
        self.root: int | None = None  # the token committed last; None before the prefill

    def propose(self, committed: list[int], room: int, chance: Chance) -> Draft:
        if not room:
            return EMPTY
        return self.grow(self.guesser.extend(self.tokens, self.features), room, chance)

    def grow(self, law: Tensor, room: int, chance: Chance) -> Draft:
        """A tree of depth `room` at most; law: [1, V] of the root's children."""
        raise NotImplementedError(f"{type(self).__name__} names no way to grow.")

    def observe(self, draft: Draft, scores: Scores, verdict: Verdict, chance: Chance) -> None:
        """Keep the features of root and path, inner ones if asked for, and the token that came after each."""
        path = [draft.tokens[node] for node in verdict.path]
        self.features = scores.hidden if scores.taps is None else scores.taps
        if self.root is None:
            self.features = self.session.prefix_hidden if scores.taps is None else self.session.prefix_taps
            path = [0] * (self.features.shape[1] - 1)
        elif len(path) < len(draft):
            self.features = self.features[:, [0, *(node + 1 for node in verdict.path)]]
        self.root = verdict.token
        self.tokens = [*path, verdict.token]


@dataclass(frozen=True)
class Siblings:
    """Children of one rank: each of another node."""

    rank: int
    rows: list[int]
    """[k] which node's."""
    tokens: list[int]
    """[k]"""
    q: Tensor
    """[k, V] laws they were drawn from, those of lower rank refused."""


class StaticDrafter(EagleDrafter):
    """A tree whose shape is fixed beforehand, its children drawn from the head's law without replacement."""

    def __init__(self, guesser: Guesser, session: Session, tree: StaticTree) -> None:
        super().__init__(guesser, session)
        self.tree = tree

    def grow(self, law: Tensor, room: int, chance: Chance) -> Draft:
        fanout, height = self.tree.fanout, min(room, self.tree.height)
        tokens, parents, q, laws = [], [], [], law
        level: list[tuple[int, tuple[int, ...]]] = [(ROOT, ())]  # nodes to grow on, each with its path of ranks
        for depth in range(1, height + 1):
            grown, above = [], []
            for drawn in siblings(laws, [fanout[path] for _, path in level], chance):
                for token, row in zip(drawn.tokens, drawn.rows):
                    parent, path = level[row]
                    if (*path, drawn.rank) in fanout:
                        grown.append((len(tokens), (*path, drawn.rank)))
                        above.append(row)
                    tokens.append(token)
                    parents.append(parent)
                q.append(drawn.q)
            if depth == height or not grown:
                break
            level = grown
            laws = self.guesser.step([tokens[node] for node, _ in level], above, depth)
        return Draft(tokens, parents, torch.cat(q), calls=depth)


def siblings(laws: Tensor, counts: list[int], chance: Chance) -> Iterator[Siblings]:
    """Draw children of m nodes without replacement, as many as asked for or as a law has tokens.

    laws: [m, V]; counts: [m].
    """
    most = max(counts)
    if most > 1:
        laws = laws.clone()
        counts = [min(pair) for pair in zip(counts, (laws > 0).sum(-1).tolist())]
    for rank in range(max(counts)):
        rows = [row for row, count in enumerate(counts) if count > rank]
        q = laws[rows] if most > 1 else laws
        if rank:
            q = q / q.sum(-1, keepdim=True)
        tokens = chance.categorical(q).tolist()
        yield Siblings(rank, rows, tokens, q)
        if most > 1:
            laws[rows, tokens] = 0


class DynamicDrafter(EagleDrafter):
    """EAGLE-2: of the likeliest children the `width` best nodes of a level grow on, and the best `nodes` are guessed.

    A node is as good as the head's probability of its whole path. The tree follows from what is committed alone, so
    its guesses are certainties: q is one-hot. length: depth of the tree.
    """

    def __init__(self, guesser: Guesser, session: Session, width: int, nodes: int, length: int) -> None:
        super().__init__(guesser, session)
        self.width, self.nodes, self.length = width, nodes, length

    def grow(self, law: Tensor, room: int, chance: Chance) -> Draft:
        tokens, parents, scores = [], [], []  # candidates in the order they come up
        level, laws, above = [ROOT], law, law.new_zeros(1, 1)
        height = min(room, self.length)
        for depth in range(1, height + 1):
            best = laws.log().topk(min(self.width, laws.shape[-1]), dim=-1)
            score = above + best.values  # [m, width]
            first = len(tokens)
            tokens += best.indices.flatten().tolist()
            parents += [node for node in level for _ in range(score.shape[-1])]
            scores += score.flatten().tolist()
            if depth == height:
                break
            chosen = sorted(
                (place for place in range(score.numel()) if scores[first + place] > -torch.inf),
                key=lambda place: -scores[first + place],
            )[: self.width]
            rows = [place // score.shape[-1] for place in chosen]
            level = [first + place for place in chosen]
            laws = self.guesser.step([tokens[node] for node in level], rows, depth)
            above = score.flatten()[chosen][:, None]
        return self.best(tokens, parents, scores, law, height)

    def best(self, tokens: list[int], parents: list[int], scores: list[float], law: Tensor, calls: int) -> Draft:
        """The `nodes` best candidates. A parent is as good as its children and comes first, so it is among them."""
        possible = [node for node, score in enumerate(scores) if score > -torch.inf]
        kept = sorted(sorted(possible, key=lambda node: -scores[node])[: self.nodes])
        place = {node: index for index, node in enumerate(kept)} | {ROOT: ROOT}
        guesses = [tokens[node] for node in kept]
        return Draft(guesses, [place[parents[node]] for node in kept], one_hot(guesses, law), calls)
