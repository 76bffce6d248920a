"""Draft trees: who descends from whom, and the static shapes drafts are grown in. Knows nothing of models."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


ROOT = -1
MOST_NODES = 64


@dataclass(frozen=True)
class Draft:
    """Guesses for the next positions, a tree under the last committed token. A chain is a tree without siblings.

    tokens: [N], parents first, siblings in the order they were drawn. parents: [N], -1 is the root.
    q: [N, V], the law node i was drawn from, its earlier siblings refused. The row is the kind: one-hot marks a
    deterministic node. calls: forwards of a drafter network that made it.
    """

    tokens: list[int]
    parents: list[int]
    q: Tensor
    calls: int = 0

    def __post_init__(self) -> None:
        assert len(self.tokens) == len(self.parents) == len(self.q), "tokens, parents and q differ in length"
        for node, parent in enumerate(self.parents):
            assert ROOT <= parent < node, f"node {node} precedes its parent {parent}"

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def depth(self) -> list[int]:
        """[N]; the first guess has depth 1."""
        return depths(self.parents)

    @property
    def height(self) -> int:
        """Depth of the deepest node, 0 for an empty draft."""
        return max(self.depth, default=0)

    @cached_property
    def children(self) -> list[list[int]]:
        """[1 + N]; entry 0 the root's children, entry i + 1 those of node i, in the order they were drawn."""
        children: list[list[int]] = [[] for _ in range(len(self) + 1)]
        for node, parent in enumerate(self.parents):
            children[parent + 1].append(node)
        return children

    @property
    def is_chain(self) -> bool:
        return self.parents == list(range(-1, len(self) - 1))

    def path(self, node: int) -> list[int]:
        """Nodes from depth 1 down to `node`."""
        path = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    @cached_property
    def paths(self) -> Tensor:
        """[leaves, 1 + height] rows of `Scores` from the root to each leaf, filled up with -1."""
        return leaf_paths(self.parents)

    @cached_property
    def tree_mask(self) -> Tensor:
        """[1 + N, 1 + N] bool on the device of q: row i sees column j, itself or an ancestor; row 0 is the root."""
        return tree_mask(self.parents).to(self.q.device)


EMPTY = Draft([], [], torch.empty(0, 0))


def chain(tokens: list[int], q: Tensor, calls: int = 0) -> Draft:
    """A draft without siblings; tokens [N], q [N, V]."""
    return Draft(tokens, list(range(-1, len(tokens) - 1)), q, calls)


def depths(parents: list[int]) -> list[int]:
    """Depth of every node, [N]; children of the root have depth 1."""
    depth: list[int] = []
    for parent in parents:
        depth.append(1 if parent == ROOT else depth[parent] + 1)
    return depth


def tree_mask(parents: list[int]) -> Tensor:
    """[1 + N, 1 + N] bool: row i sees column j when j is i or an ancestor of it; row 0 is the root."""
    mask = torch.eye(len(parents) + 1, dtype=torch.bool)
    for node, parent in enumerate(parents):
        mask[node + 1] |= mask[parent + 1]
    return mask


def leaf_paths(parents: list[int]) -> Tensor:
    """[leaves, 1 + height] rows from the root (0) to each leaf (node i is row i + 1), filled up with -1."""
    leaves = sorted(set(range(len(parents))) - set(parents))
    paths = []
    for leaf in leaves:
        path = []
        while leaf != ROOT:
            path.append(leaf + 1)
            leaf = parents[leaf]
        paths.append([0, *path[::-1]])
    if not paths:
        return torch.zeros(1, 1, dtype=torch.int64)
    longest = max(map(len, paths))
    return torch.tensor([path + [-1] * (longest - len(path)) for path in paths])


@dataclass(frozen=True)
class StaticTree:
    """A shape fixed before anything is drawn: every node is the path of child ranks that leads to it.

    choices: paths in any order, (1, 0) is the first child of the root's second child. Every path's parent and earlier
    siblings must be there: ranks are the order of drawing, and none can be skipped.
    """

    choices: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        known = set(self.choices)
        if not known or len(known) != len(self.choices):
            raise ValueError(f"`tree` must name every node once and at least one, got {list(self.choices)}.")
        for path in known:
            if not path or min(path) < 0:
                raise ValueError(f"`tree` must be paths of child ranks from 0, got {list(path)}.")
            lacking = path[:-1] if path[:-1] and path[:-1] not in known else (*path[:-1], path[-1] - 1)
            if lacking not in known and lacking[-1] >= 0:
                raise ValueError(f"`tree` must hold {list(lacking)} too, since it holds {list(path)}.")

    @cached_property
    def order(self) -> list[tuple[int, ...]]:
        """[N] paths by depth, then by ranks: the order of the nodes in a draft."""
        return sorted(self.choices, key=lambda path: (len(path), path))

    @cached_property
    def parents(self) -> list[int]:
        """[N]; -1 is the root."""
        place = {path: node for node, path in enumerate(self.order)}
        return [place.get(path[:-1], ROOT) for path in self.order]

    @property
    def height(self) -> int:
        """Depth of the deepest node."""
        return max(map(len, self.choices))

    @cached_property
    def fanout(self) -> dict[tuple[int, ...], int]:
        """Path of every node that has children -> how many; () is the root."""
        return Counter(path[:-1] for path in self.choices)


def _parse(paths: str) -> StaticTree:
    return StaticTree(tuple(tuple(map(int, path)) for path in paths.split()))


def tree_paths(paths: Sequence) -> list[list[int]]:
    """A user's paths of child ranks, if they are the shape of one tree of at most `MOST_NODES`; else ValueError."""
    found = [list(path) if isinstance(path, list | tuple) else path for path in paths]
    if not all(isinstance(path, list) and all(type(rank) is int for rank in path) for path in found):
        raise ValueError(f"`tree` must be a list of paths such as [[0], [1], [0, 0]], got {str(paths):.60}.")
    if len(found) > MOST_NODES:
        raise ValueError(f"`tree` must have at most {MOST_NODES} nodes, got {len(found)}.")
    StaticTree(tuple(map(tuple, found)))
    return found


def path_down(length: int) -> StaticTree:
    """The shape of a chain of `length` guesses."""
    return StaticTree(tuple((0,) * depth for depth in range(1, length + 1)))


# Nodes (the root not counted) -> shape. 25: "mc_sim_7b_63" of EAGLE-1; 57: "naive_extend_57" of LANTERN. Others: ours.
STATIC_TREES = {
    6: _parse("0 1 00 01 000 0000"),
    10: _parse("0 1 2 00 01 10 000 001 0000 00000"),
    15: _parse("0 1 2 3 00 01 02 10 20 000 001 010 100 0000 00000"),
    25: _parse("0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001"),
    57: _parse(
        "0 1 2 3 4 00 01 02 03 10 11 12 20 21 22 30 31 40 "
        "000 001 002 003 010 011 012 020 021 022 030 031 100 101 110 200 "
        "0000 0001 0002 0003 0010 0011 0012 0020 0021 0030 0100 0101 0110 0200 "
        "00000 00001 00002 00010 00011 00100 00101 00110 00200"
    ),
}
