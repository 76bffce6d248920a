"""Drafts of a head: the right rows are fed to it, and whatever it says the output law is the target's."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import Table, TableSession, assert_same_law, gap, laws_only
from test_laws import DRAFT, ROW, SQUARE, STARTED, Case, NoResidual
from torch import Tensor

from pipelines.decoding.eagle_drafter import DynamicDrafter, StaticDrafter, siblings
from pipelines.decoding.rules import ExactRule
from pipelines.decoding.verify import Verdict
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import EMPTY, STATIC_TREES, StaticTree, leaf_paths, path_down


CASES = json.loads((Path(__file__).parent / "vectors" / "drafter.json").read_text())["eagle2_dynamic_tree"]
FORKED = StaticTree(((0,), (1,), (0, 0), (0, 1), (1, 0)))


class TableGuesser:
    """A head as a table of another seed. Insists on the target's own features, each with the token after it."""

    def __init__(self, session: TableSession) -> None:
        self.session = session
        self.laws = DRAFT.open(session.warp, session.guidance_scale, session.layout).laws
        self.committed: tuple[int, ...] = ()

    def extend(self, tokens: list[int], features: Tensor) -> Tensor:
        if not self.committed:
            assert tokens[:-1] == [0] * (Table.PROMPT - 1) and torch.equal(features, self.session.prefix_hidden)
            tokens = tokens[-1:]
            features = features[:, -1:]
        for token, row in zip(tokens, features.unbind(1), strict=True):
            assert torch.equal(row, self.session.table.features[self.committed][: self.session.rows])
            self.committed += (token,)
        assert self.committed == self.session.committed
        self.contexts = [self.committed]
        return self.laws(self.committed)[0][None]

    def step(self, tokens: list[int], parents: list[int], depth: int) -> Tensor:
        self.contexts = [(*self.contexts[parent], token) for token, parent in zip(tokens, parents)]
        assert {len(context) - len(self.committed) for context in self.contexts} == {depth}
        return torch.stack([self.laws(context)[0] for context in self.contexts])


def static(tree: StaticTree):
    return lambda session: StaticDrafter(TableGuesser(session), session, tree)


def dynamic(width: int, nodes: int, length: int):
    return lambda session: DynamicDrafter(TableGuesser(session), session, width, nodes, length)


LOSSLESS = {
    "chain of 1": Case(static(path_down(1)), SQUARE),
    "chain of 2": Case(static(path_down(2)), SQUARE),
    "tree": Case(static(FORKED), STARTED),
    "more children than tokens": Case(static(StaticTree(tuple((rank,) for rank in range(5)))), ROW),
    "dynamic tree": Case(dynamic(2, 4, 2), SQUARE),
    "wide dynamic tree": Case(dynamic(3, 12, 3), SQUARE),
    "chain, guided and filtered": Case(static(path_down(2)), SQUARE, Warp(1.3, 2, 0.9), scale=3.0),
    "tree, guided and filtered": Case(static(FORKED), ROW, Warp(top_p=0.8), scale=2.0),
    "dynamic tree, guided and filtered": Case(dynamic(2, 4, 2), SQUARE, Warp(top_k=2), scale=2.0),
    "forced line ends": Case(static(FORKED), Layout(1, 3, {2: 1})),
}


@pytest.mark.parametrize("name", LOSSLESS)
def test_output_law_is_the_targets(name):
    case = LOSSLESS[name]
    assert_same_law(case.law(), case.open().joint())


@pytest.mark.parametrize("name", LOSSLESS)
def test_temperature_0_is_greedy(name):
    case = replace(LOSSLESS[name], warp=Warp(temperature=0.0))
    assert_same_law(case.law(), case.open().joint())
    assert len(case.law()) == 1


class UnreducedDrafter(StaticDrafter):
    """Broken: every sibling carries the law of the first."""

    def grow(self, law: Tensor, room: int, chance: Chance):
        draft = super().grow(law, room, chance)
        return replace(draft, q=draft.q[[draft.children[parent + 1][0] for parent in draft.parents]])


class SharperDrafter(StaticDrafter):
    """Broken: draws from another law than it reports."""

    def grow(self, law: Tensor, room: int, chance: Chance):
        draft = super().grow(law**2 / (law**2).sum(), room, chance)
        return replace(draft, q=torch.cat([law, draft.q[1:]]))


TWINS = {
    "siblings not reduced": (lambda session: UnreducedDrafter(TableGuesser(session), session, FORKED), ExactRule),
    "wrong q": (lambda session: SharperDrafter(TableGuesser(session), session, path_down(1)), ExactRule),
    "no residual": (static(path_down(2)), NoResidual),
    "no residual, certain guesses": (dynamic(2, 4, 2), NoResidual),
}


@pytest.mark.parametrize("name", TWINS)
def test_a_broken_twin_is_seen(name):
    make, rule = TWINS[name]
    case = Case(make, ROW)
    assert gap(case.law(rule), case.open().joint()) > 1e-3


class FlatGuesser:
    """Knows nothing."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary, self.calls = vocabulary, 0

    def extend(self, tokens: list[int], features: Tensor) -> Tensor:
        self.calls += 1
        return torch.full((1, self.vocabulary), 1 / self.vocabulary)

    def step(self, tokens: list[int], parents: list[int], depth: int) -> Tensor:
        self.calls += 1
        return torch.full((len(tokens), self.vocabulary), 1 / self.vocabulary)


def heard(drafter):
    """A drafter after a prefill that said 0."""
    scores = laws_only(torch.ones(1, drafter.guesser.vocabulary))
    drafter.session.prefix_hidden = scores.hidden
    drafter.observe(EMPTY, scores, Verdict([], 0, [], [], []), CHANCE)
    return drafter


CHANCE = Chance(torch.Generator().manual_seed(0))


@pytest.mark.parametrize("nodes", STATIC_TREES)
def test_a_draft_has_the_shape_of_its_tree(nodes):
    tree = STATIC_TREES[nodes]
    guesser = FlatGuesser(40)
    drafter = heard(StaticDrafter(guesser, TableSession.__new__(TableSession), tree))
    draft = drafter.propose([0], 9, CHANCE)
    assert len(draft) == nodes and draft.height == tree.height
    assert sorted(map(len, draft.children)) == sorted([*tree.fanout.values()] + [0] * (nodes + 1 - len(tree.fanout)))
    assert draft.calls == guesser.calls == len({len(path) for path in tree.fanout})
    for siblings_of_one in draft.children:
        laws = [draft.q[node] for node in siblings_of_one]
        taken = [draft.tokens[node] for node in siblings_of_one]
        assert len(set(taken)) == len(taken), "a sibling was drawn twice"
        for rank, law in enumerate(laws):
            assert float(law.sum()) == pytest.approx(1, abs=1e-5) and not law[taken[:rank]].any()


@pytest.mark.parametrize("room", range(5))
def test_drafts_end_with_the_picture(room):
    for make in (
        lambda guesser, session: StaticDrafter(guesser, session, STATIC_TREES[25]),
        lambda guesser, session: DynamicDrafter(guesser, session, 3, 60, 5),
    ):
        draft = heard(make(FlatGuesser(8), TableSession.__new__(TableSession))).propose([0], room, CHANCE)
        assert draft.height == room and draft.calls == room


def test_no_more_children_than_the_law_has_tokens():
    laws = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.25] * 4, [0.0, 0.0, 1.0, 0.0]])
    found = [(drawn.rank, drawn.rows) for drawn in siblings(laws, [3, 3, 3], CHANCE)]
    assert found == [(0, [0, 1, 2]), (1, [0, 1]), (2, [1])]
    assert laws[1].tolist() == [0.25] * 4, "the laws drawn from are the head's no more"


@pytest.mark.parametrize("case", CASES)
def test_the_best_nodes_make_the_dynamic_tree(case):
    children = {int(token): law for token, law in case["child_dist_by_last_token"].items()}

    class Given(FlatGuesser):
        def extend(self, tokens, features):
            return torch.tensor([case["root_dist"]], dtype=torch.float64)

        def step(self, tokens, parents, depth):
            return torch.tensor([children[token] for token in tokens], dtype=torch.float64)

    drafter = heard(
        DynamicDrafter(
            Given(len(case["root_dist"])),
            TableSession.__new__(TableSession),
            case["top_k"],
            case["total_draft_nodes"],
            case["depth"] + 1,
        )
    )
    draft = drafter.propose([0], 9, CHANCE)
    assert draft.tokens == case["selected_tokens"]
    assert [parent + 1 for parent in draft.parents] == case["parent_index"]
    assert [0, *draft.depth] == case["position"]
    assert draft.tree_mask.int().tolist() == case["tree_mask"]
    assert sorted(leaf_paths(draft.parents).tolist()) == case["retrieve_indices_sorted"]
    assert draft.q.argmax(-1).tolist() == draft.tokens and (draft.q.sum(-1) == 1).all()
