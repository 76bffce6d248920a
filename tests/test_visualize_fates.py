"""Fates and chances of squares, on rounds small enough to judge by hand."""

import math

import numpy as np
import pytest

from benchmarks.traces import TRACES
from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import Trace, load
from tests.rounds import HEADER, a_round
from visualize.fates import chance_grid, chances, fate_grid, fates


NAN = math.nan


def test_nothing_guessed_is_drawn():
    assert fates(a_round(committed=[4])) == "d"
    assert np.isnan(chances(a_round(committed=[4]))).all()


def test_a_refused_guess_is_redrawn():
    step = a_round(tokens=[1, 2], parents=[-1, 0], accept_prob=[0.25, NAN], dice=[0.5, NAN], committed=[7])
    assert fates(step) == "r"
    assert chances(step) == [0.25]


def test_kept_guesses_then_the_token_in_place_of_the_refused_one():
    step = a_round(
        tokens=[1, 2, 3],
        parents=[-1, 0, 1],
        accept_prob=[1, 0.5, NAN],
        dice=[0.3, 0.9, NAN],
        path=[0],
        committed=[1, 7],
    )
    assert fates(step) == "kr"
    assert chances(step) == [1.0, 0.5]


def test_all_kept_brings_an_extra_token():
    step = a_round(
        tokens=[1, 2], parents=[-1, 0], accept_prob=[1, 0.5], dice=[0.3, 0.4], path=[0, 1], committed=[1, 2, 7]
    )
    assert fates(step) == "kkx"
    assert chances(step)[:2] == [1.0, 0.5] and math.isnan(chances(step)[2])


def test_siblings_share_a_square():
    """The root's first child is refused, the second kept; of the kept one's two children both are refused."""
    step = a_round(
        tokens=[1, 2, 3, 4],
        parents=[-1, -1, 1, 1],
        accept_prob=[0.5, 0.5, 0.2, 0.25],
        dice=[0.6, 0.1, 0.5, 0.9],
        path=[1],
        committed=[2, 7],
    )
    assert fates(step) == "kr"
    assert chances(step) == pytest.approx([0.75, 0.4])


@pytest.mark.parametrize(("dice", "fate"), [(0.29, "k"), (0.31, "l")])
def test_kept_only_thanks_to_relaxation_is_what_the_exact_rule_would_refuse(dice: float, fate: str):
    step = a_round(
        tokens=[1], parents=[-1], p=[0.3], q=[1.0], accept_prob=[0.6], dice=[dice], path=[0], committed=[1, 2]
    )
    assert fates(step) == f"{fate}x"


def test_no_square_of_a_lossless_recording_is_due_to_relaxation():
    trace = load(TRACES / "sjd.npz")
    assert set(fate_grid(trace).flat) == set("dkrx")
    assert np.isnan(chance_grid(trace)).sum() == (np.isin(fate_grid(trace), ["d", "x"])).sum()


def test_grids_put_tokens_on_their_squares_and_leave_the_rest_empty():
    layout = Layout(2, 2, forced={2: 9, 5: 9})
    steps = [
        a_round(start=0, committed=[5]),
        a_round(
            *(1, 1),
            tokens=[1, 9],
            parents=[-1, 0],
            accept_prob=[0.5, 1],
            dice=[0.1, 0.1],
            path=[0, 1],
            committed=[1, 9, 7],
        ),
    ]
    trace = Trace(HEADER, layout, steps)
    assert fate_grid(trace).tolist() == [["d", "k"], ["x", ""]]
    np.testing.assert_array_equal(chance_grid(trace), [[NAN, 0.5], [NAN, NAN]])
