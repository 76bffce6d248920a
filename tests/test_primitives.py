"""Chance, laws, trees and layouts by themselves."""

import ast
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import GivenDice

from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp, guide, one_hot, residual, total_variation
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import EMPTY, STATIC_TREES, Draft, StaticTree, chain, depths


ROOT = Path(__file__).parents[1]
LARGEST_DICE = 1 - 2**-53


def laws(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(-1)


# Chance


def test_a_token_is_the_first_whose_cumulative_mass_exceeds_the_dice():
    probs = torch.tensor([[0.2, 0.0, 0.3, 0.5]], dtype=torch.float64)
    drawn = {dice: int(GivenDice([dice]).categorical(probs)) for dice in (0.0, 0.19, 0.2, 0.49, 0.5, LARGEST_DICE)}
    assert drawn == {0.0: 0, 0.19: 0, 0.2: 2, 0.49: 2, 0.5: 3, LARGEST_DICE: 3}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dice", [0.0, 1e-300, 0.5, LARGEST_DICE])
def test_a_token_of_probability_0_is_never_drawn(dtype, dice):
    rows = laws(200, 50).to(dtype)
    rows[torch.rand(200, 50, generator=torch.Generator().manual_seed(1)) < 0.7] = 0
    rows[:, 25] += 0.1
    rows[:, -1] = 0  # what lies behind the last possible token
    rows *= torch.logspace(-3, 3, 200, dtype=torch.float64).to(dtype)[:, None]  # rows need not sum to 1
    drawn = GivenDice([dice] * 200).categorical(rows)
    assert (rows.gather(-1, drawn[:, None]) > 0).all()


def test_every_row_of_a_draw_has_a_dice_of_its_own():
    probs = torch.full((3, 10), 0.1, dtype=torch.float64)
    assert GivenDice([0.05, 0.55, 0.95]).categorical(probs).tolist() == [0, 5, 9]


def test_a_law_without_mass_is_a_bug():
    for row in (torch.zeros(1, 3), torch.full((1, 3), torch.nan)):
        with pytest.raises(AssertionError, match="without mass"):
            GivenDice([0.5]).categorical(row)


def test_a_decision_is_true_below_its_probability():
    assert GivenDice([0.3]).bernoulli(0.3) == (False, 0.3)
    assert GivenDice([0.3]).bernoulli(0.31) == (True, 0.3)
    assert GivenDice([0.0]).bernoulli(0.0) == (False, 0.0)
    assert GivenDice([LARGEST_DICE]).bernoulli(1.0) == (True, LARGEST_DICE)
    with pytest.raises(AssertionError, match="not a probability"):
        GivenDice([0.5]).bernoulli(float("nan"))


def test_a_generator_gives_the_same_dice_again():
    probs = laws(4, 100)

    def rolls(seed: int) -> list:
        chance = Chance(torch.Generator().manual_seed(seed))
        return [chance.bernoulli(0.5), chance.categorical(probs).tolist(), chance.bernoulli(0.5)]

    assert rolls(3) == rolls(3) != rolls(4)


DRAWING = {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "multinomial"}
DRAWING |= {"normal", "poisson", "bernoulli", "dropout", "Dropout", "gumbel_softmax", "Categorical", "default_rng"}
DRAWING |= {"uniform_", "normal_", "exponential_", "random_", "bernoulli_", "shuffle"}
GLOBAL = ("torch.manual_seed", "torch.random", "np.random", "numpy.random", "random")


def draws(source: str) -> list[str]:
    """Places that roll dice without `Chance`. First weights are drawn too, when made; they decide no token."""
    found, pending = [], [ast.parse(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef) and node.name in ("__init__", "_init_weights"):
            continue
        pending += ast.iter_child_nodes(node)
        names = []
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
        if isinstance(node, ast.Call):
            names = [ast.unparse(node.func)]
        for name in names:
            drawing = name.split(".")[-1] in DRAWING and not name.startswith(("chance.", "nn.init."))
            if drawing or name in GLOBAL or name.startswith(tuple(f"{module}." for module in GLOBAL)):
                found.append(f"{node.lineno}: {name}")
    return found


def test_nothing_but_chance_draws():
    library = [*ROOT.glob("pipelines/**/*.py"), *ROOT.glob("visualize/**/*.py"), *ROOT.glob("app.py")]
    library.remove(ROOT / "pipelines/primitives/chance.py")
    found = [f"{path.relative_to(ROOT)}:{line}" for path in library for line in draws(path.read_text())]
    assert not found, found


@pytest.mark.parametrize(
    "line", ["torch.rand(3)", "import random", "x.uniform_()", "np.random.rand()", "torch.manual_seed(0)"]
)
def test_a_hidden_dice_is_found(line):
    assert draws(line)


# Laws


def test_guidance_extrapolates_from_the_unconditional():
    assert guide(torch.tensor([2.0]), torch.tensor([1.0]), 3.0).tolist() == [4.0]


def test_residual_of_equal_laws_is_p():
    p = laws(7)
    assert residual(p, p) is p


def test_residual_holds_what_p_has_more_of():
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.4, 0.4])
    assert residual(p, q).tolist() == [1.0, 0.0, 0.0]
    assert residual(p, one_hot([1], p)[0]).tolist() == pytest.approx([5 / 7, 0, 2 / 7])


def test_total_variation_is_0_for_equal_and_1_for_disjoint_laws():
    p = torch.eye(3)
    assert total_variation(p, p).tolist() == [0, 0, 0]
    assert total_variation(p, p.roll(1, 0)).tolist() == [1, 1, 1]


def test_laws_are_float32_unless_logits_are_float64():
    for dtype, expected in ((torch.bfloat16, torch.float32), (torch.float32,) * 2, (torch.float64,) * 2):
        assert Warp(top_k=2, top_p=0.5).filter(Warp().soften(torch.zeros(3, 4, dtype=dtype))).dtype == expected


def test_temperature_0_is_certain_of_the_first_largest():
    warp = Warp(temperature=0, top_k=2, top_p=0.5)
    assert warp.filter(warp.soften(torch.tensor([[1.0, 3.0, 3.0], [0.0, 0.0, -1.0]]))).tolist() == [
        [0, 1, 0],
        [1, 0, 0],
    ]


def test_top_k_keeps_ties_and_rescales():
    assert Warp(top_k=2).filter(torch.tensor([0.4, 0.2, 0.2, 0.2])).tolist() == pytest.approx([0.4, 0.2, 0.2, 0.2])
    assert Warp(top_k=1).filter(torch.tensor([0.4, 0.3, 0.3])).tolist() == [1, 0, 0]
    assert Warp(top_k=9).filter(torch.tensor([0.4, 0.6])).tolist() == pytest.approx([0.4, 0.6])


def test_top_p_keeps_the_crossing_token():
    probs = torch.tensor([0.1, 0.5, 0.4])
    assert Warp(top_p=0.0).filter(probs).tolist() == [0, 1, 0]
    assert Warp(top_p=0.6).filter(probs).tolist() == pytest.approx([0, 5 / 9, 4 / 9])
    assert Warp(top_p=1.0).filter(probs) is probs


@pytest.mark.parametrize("knob", [{"temperature": -1}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 1.5}])
def test_a_warp_refuses_what_lies_outside(knob):
    with pytest.raises(ValueError, match=f"`{next(iter(knob))}` must .*, got"):
        Warp(**knob)


# Trees


def random_parents(count: int, seed: int) -> list[int]:
    dice = torch.Generator().manual_seed(seed)
    return [int(torch.randint(-1, node, (1,), generator=dice)) for node in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_a_tree_agrees_with_itself(seed):
    parents = random_parents(12, seed)
    draft = Draft([0] * 12, parents, torch.ones(12, 1))
    for node in range(12):
        path = draft.path(node)
        assert draft.depth[node] == len(path)
        assert [parents[below] for below in path] == [-1, *path[:-1]]
        seen = draft.tree_mask[node + 1].nonzero().flatten().tolist()
        assert seen == sorted([0, *(above + 1 for above in path)])
        assert node in draft.children[parents[node] + 1]
    leaves = [row[row >= 0].tolist() for row in draft.paths]
    assert leaves == [[0, *(above + 1 for above in draft.path(leaf))] for leaf in range(12) if leaf not in parents]
    assert draft.height == max(map(len, leaves)) - 1
    assert draft.is_chain == (parents == list(range(-1, 11)))


def test_an_empty_draft_is_its_root():
    assert (len(EMPTY), EMPTY.height, EMPTY.is_chain) == (0, 0, True)
    assert EMPTY.tree_mask.tolist() == [[True]]
    assert EMPTY.paths.tolist() == [[0]]


def test_a_chain_has_no_siblings():
    draft = chain([4, 5, 6], torch.ones(3, 7))
    assert draft.is_chain and draft.parents == [-1, 0, 1] and draft.depth == [1, 2, 3]


def test_a_node_before_its_parent_is_a_bug():
    with pytest.raises(AssertionError, match="node 0 precedes its parent 1"):
        Draft([1, 2], [1, -1], torch.ones(2, 3))


def test_the_static_tree_of_57_nodes_has_the_published_widths():
    parents = STATIC_TREES[57].parents
    assert [depths(parents).count(level) for level in range(1, 6)] == [5, 13, 16, 14, 9]
    assert len(set(range(57)) - set(parents)) == 33


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ((), "at least one"),
        (((0,), (0,)), "once"),
        (((0,), (1, 0)), r"must hold \[1\] too"),
        (((0,), (0, 1)), r"must hold \[0, 0\] too"),
        (((1,),), r"must hold \[0\] too"),
        (((-1,),), "ranks from 0"),
    ],
)
def test_an_impossible_static_tree_is_refused(choices, message):
    with pytest.raises(ValueError, match=message):
        StaticTree(choices)


# Layouts


def test_squares_are_counted_row_by_row_around_forced_tokens():
    layout = Layout(2, 2, {2: 9, 5: 8})
    assert layout.length == 6
    assert layout.positions.tolist() == [[0, 1], [3, 4]]
    assert [layout.row_col(position) for position in range(6)] == [(0, 0), (0, 1), None, (1, 0), (1, 1), None]
    assert [layout.left(position) for position in range(6)] == [None, 0, None, None, 3, None]
    assert layout.grid(np.array([5, 6, 9, 7])).tolist() == [[5, 6], [7, -1]]


@pytest.mark.parametrize("probs", [np.full((2, 4), 0.25), torch.full((2, 4), 0.25)])
def test_a_forced_position_is_certain(probs):
    layout = Layout(1, 2, {1: 3})
    assert layout.force(probs, 0) is probs
    assert layout.force(probs, 1).tolist() == [[0, 0, 0, 1]] * 2


def test_an_impossible_layout_is_refused():
    with pytest.raises(ValueError, match="`rows` and `cols` must be at least 1, got 0 and 4"):
        Layout(0, 4)
    with pytest.raises(ValueError, match="`forced` must name positions from 0 to 4"):
        Layout(2, 2, {7: 1})


@pytest.mark.parametrize("shape", [(300,), (5, 300), (2, 3, 300)])
@pytest.mark.parametrize("top_p", [0.0, 0.3, 0.9, 0.999])
def test_top_p_keeps_what_ranking_all_tokens_keeps(shape: tuple[int, ...], top_p: float):
    """Peaked, flat and tied laws: the few likeliest tokens are looked at first, and they may not be all that stay."""
    sharpness = torch.linspace(0, 8, math.prod(shape[:-1])).reshape(*shape[:-1], 1)
    laws = (sharpness * torch.randn(shape, generator=torch.Generator().manual_seed(1)).round(decimals=1)).softmax(-1)
    ranked, tokens = laws.sort(dim=-1, descending=True, stable=True)
    stays = torch.zeros_like(laws).scatter(-1, tokens, (ranked.cumsum(-1) - ranked <= top_p).float())
    found = Warp(top_p=top_p).filter(laws)
    assert torch.equal(found > 0, stays > 0)
    assert torch.allclose(found, laws * stays / (laws * stays).sum(-1, keepdim=True))
