"""Figures of CASCADE's rounds: marks sit where the numbers say, and the same trace gives the same pixels."""

import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import FancyArrowPatch
from PIL import Image
from rounds import HEADER, a_round

from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import Trace
from tests.tiny import refusal
from visualize.cascade import (
    ALIKE,
    CONVERGENT,
    convergent,
    depths,
    figures,
    interchangeable,
    levels,
    places,
    transfer,
    tree,
)
from visualize.parcel import parcel


COSINES = np.array([[1, 0.7, 0, 0], [0.7, 1, 0.95, 0.2], [0, 0.95, 1, 0], [0, 0.2, 0, 1]], np.float16)
SETTINGS = {"tau_level": 0.9, "tau_parent": 0.6, "delta": 0.5, "budget": "test"}
NOTES = {
    "judged": np.array([0, 1], np.int32),
    "moved": np.array([0.3, 0.0], np.float32),
    "infidelity": np.array([0.25, 0.0]),
    "parent_offer": np.array([0.1, 0.1], np.float32),
    "offers": np.array([[0.1, 0.2, 0.4], [0, 0.25, 0.5]], np.float32),
    "borrower": np.array([0, 0], np.int32),
    "lender": np.array([1, -1], np.int32),
    "lent": np.array([0.2, 0.1], np.float32),
    "similarity": COSINES,
    "centred": np.array([True]),
}


@pytest.fixture
def trace() -> Trace:
    """Two children of the root, alike, and a child of the first; the first is refused, the second kept."""
    nan = np.nan
    judged = a_round(
        index=1,
        start=1,
        tokens=(5, 6, 7),
        parents=(-1, -1, 0),
        p=(0.1, 0.25, 0.2),
        q=(0.5, 0.25, 0.2),
        accept_prob=(0.8, 1.0, nan),
        dice=(0.9, 0.3, nan),
        path=(1,),
        committed=(6, 2),
    )
    header = replace(HEADER, method="CascadePipeline", settings=SETTINGS)
    return Trace(header, Layout(2, 2), [a_round(), replace(judged, notes=NOTES)])


def test_arcs_and_double_edges_follow_the_thresholds(trace):
    step = trace.steps[1]
    assert depths(step).tolist() == [0, 1, 1, 2]
    assert interchangeable(step, 0.9) == [(0, 1)] and interchangeable(step, 0.96) == []
    assert convergent(step, 0.6) == [0] and convergent(step, 0.0) == [0, 1, 2]
    axes = tree(trace, 1).axes[0]
    arcs = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arcs) == 1 and arcs[0].get_edgecolor()[:3] == pytest.approx(
        [int(ALIKE[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    )
    doubled = [line for line in axes.lines if line.get_color() == CONVERGENT]
    assert [line.get_xydata().tolist() for line in doubled] == [places(step)[[0, 1]].tolist()]
    assert [text.get_text() for text in axes.texts] == ["5", "6", "7"]


def test_the_bars_hold_what_moved(trace):
    axes = transfer(trace, 1, 0).axes[0]
    row = {
        y: [bar.get_width() for bar in axes.patches if bar.get_y() + bar.get_height() / 2 == pytest.approx(y)]
        for y in range(4)
    }
    assert row[3] == pytest.approx([0.1, 0.2, 0, 0.7]) and row[2] == pytest.approx([0.1, 0.2, 0.1, 0.6])
    assert row[1] == pytest.approx([0.3, 0.5]), "what moved, of the budget"
    assert row[0] == pytest.approx([0.8, 0.2]), "granted, exact"
    assert axes.lines[0].get_xdata()[0] == 0.9
    trace.header.settings["budget"] = "step"
    spent = [
        bar.get_width() for bar in transfer(trace, 1, 1).axes[0].patches if bar.get_height() == pytest.approx(0.4)
    ]
    assert spent == pytest.approx([0.25, 0.5])


def test_levels_stand_together(trace):
    axes = levels(trace, 1).axes[0]
    assert axes.images[0].get_array().tolist() == COSINES.astype(float).tolist()
    assert sorted({float(line.get_xdata()[0]) for line in axes.lines} - {0.0}) == [0.5, 2.5]


@pytest.mark.parametrize("draw", [lambda trace: tree(trace, 1), lambda trace: transfer(trace, 1, 0)])
def test_the_same_trace_gives_the_same_pixels(trace, draw):
    def pixels() -> bytes:
        canvas = FigureCanvasAgg(draw(trace))
        canvas.draw()
        return bytes(canvas.buffer_rgba())

    assert pixels() == pixels()


def test_what_was_not_judged_cannot_be_drawn(trace):
    assert refusal(tree, trace, 0) == "`index` must be a round in which CASCADE judged a guess, got 0."
    assert refusal(transfer, trace, 1, 2) == "`test` must be from 0 to 1 in round 1, got 2."


def test_a_run_is_taken_along_with_the_figures_of_the_round_that_lent_most(trace):
    begin, most = trace.steps
    less = replace(most, notes=NOTES | {"infidelity": np.array([0.0, 0.1])})
    run = Trace(trace.header, Layout(2, 4), [begin, less, replace(most, start=3)])
    found = figures(run)
    assert list(found) == ["tree", "transfer", "levels"]
    assert found["tree"].axes[0].get_title().endswith("round 2")
    assert found["transfer"].axes[0].get_title() == "token 5: refused", "the test that was granted 0.25"
    assert figures(Trace(trace.header, trace.layout, [begin])) == {}
    packed = parcel([run], [Image.new("RGB", (16, 8))], ["code"])
    names = zipfile.ZipFile(io.BytesIO(packed)).namelist()
    assert {"Cascade tree.png", "Cascade transfer.png", "Cascade levels.png"} < set(names)
