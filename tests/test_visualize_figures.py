"""Figures of traces: marks sit where the numbers say, and a figure drawn twice is the same."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from benchmarks.traces import TRACES
from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import Trace, load
from tests.rounds import HEADER, a_round
from visualize.compare import compare
from visualize.export import figure_png
from visualize.heatmap import acceptance_map, chance_grid, chances, fate_grid
from visualize.style import FATE_COLOURS, FATE_MARKS, FATE_NAMES, LINES, REFERENCE_LINE, lines
from visualize.timeline import timeline


NAN = math.nan
KEPT_THEN_REFUSED = {
    "tokens": [1, 2, 3],
    "parents": [-1, 0, 1],
    "accept_prob": [1, 0.5, NAN],
    "dice": [0.3, 0.9, NAN],
    "path": [0],
    "committed": [1, 7],
}
ALL_KEPT = {
    "tokens": [1],
    "parents": [-1],
    "accept_prob": [0.6],
    "dice": [0.5],
    "path": [0],
    "committed": [1, 7],
    "p": [0.3],
    "q": [1.0],
}
# d k / r l / x and a square without a token.
TRACE = Trace(HEADER, Layout(3, 2), [a_round(0, 0), a_round(1, 1, **KEPT_THEN_REFUSED), a_round(2, 3, **ALL_KEPT)])


def pictures(count: int) -> list[Image.Image]:
    return [Image.new("RGB", (16, 16), (40 * index, 90, 200)) for index in range(count)]


FIGURES: dict[str, Callable[[], Figure]] = {
    "map": lambda: acceptance_map(TRACE),
    "timeline": lambda: timeline([TRACE, TRACE]),
    "compare": lambda: compare([TRACE, TRACE], pictures(2)),
}


def test_a_square_that_nothing_was_guessed_for_has_no_chance():
    assert np.isnan(chances(a_round())).tolist() == [True]


def test_a_guess_that_was_not_judged_counts_for_nothing():
    assert chances(a_round(**KEPT_THEN_REFUSED)) == [1.0, 0.5]


def test_an_extra_token_has_no_chance():
    assert np.isnan(chances(a_round(**ALL_KEPT))).tolist() == [False, True]


def test_siblings_share_a_square():
    """The root's first child is refused, the second kept; of the kept one's two children both are refused."""
    siblings = {"tokens": [1, 2, 3, 4], "parents": [-1, -1, 1, 1], "path": [1], "committed": [2, 7]}
    step = a_round(accept_prob=[0.5, 0.5, 0.2, 0.25], dice=[0.6, 0.1, 0.5, 0.9], **siblings)
    assert chances(step) == pytest.approx([0.75, 0.4])


def test_grids_put_tokens_on_their_squares():
    assert fate_grid(TRACE).tolist() == [["d", "k"], ["r", "l"], ["x", ""]]
    np.testing.assert_allclose(chance_grid(TRACE), [[NAN, 1], [0.5, 0.6], [NAN, NAN]])


def test_forced_tokens_fill_no_square():
    trace = Trace(HEADER, Layout(2, 2, forced={2: 9, 5: 9}), [a_round(0, 0), a_round(1, 1, **KEPT_THEN_REFUSED)])
    assert fate_grid(trace).tolist() == [["d", "k"], ["", ""]], "the redrawn token is forced"


def test_no_square_of_a_lossless_recording_is_due_to_relaxation():
    trace = load(TRACES / "sjd.npz")
    letters = fate_grid(trace)
    assert {"d", "k", "r"} <= set(letters.flat) <= {"d", "k", "r", "x"}
    assert (np.isnan(chance_grid(trace)) == np.isin(letters, ["d", "x"])).all()


def test_the_map_marks_squares_by_their_fates_and_hatches_the_untried():
    figure = acceptance_map(TRACE)
    axes, bar = figure.axes
    image = axes.get_images()[0]
    assert image.get_clim() == (0, 1) and image.get_cmap().name == "cividis"
    np.testing.assert_allclose(image.get_array().filled(NAN), chance_grid(TRACE))
    assert bar.get_ylabel() == "chance that a guess was kept"
    marked = [line.get_xydata().tolist() for line in axes.get_lines()]
    assert marked == [[[0, 1]]] * 2 + [[[0, 2]]] * 2 + [[[1, 1]]] * 2, "redrawn, extra, relaxed; each stroked twice"
    assert [tuple(patch.get_xy()) for patch in axes.patches] == [(-0.5, -0.5), (-0.5, 1.5)]
    assert all(patch.get_hatch() for patch in axes.patches)
    key = [text.get_text() for text in figure.legends[0].get_texts()]
    assert key == ["not guessed", "redrawn (1)", "extra (1)", "kept by relaxation (1)"]


def test_a_run_without_guesses_is_hatched_all_over():
    trace = load(TRACES / "ar.npz")
    assert len(acceptance_map(trace).axes[0].patches) == trace.layout.rows * trace.layout.cols


def test_an_empty_trace_can_be_drawn():
    empty = Trace(HEADER, Layout(2, 2))
    for figure in (acceptance_map(empty), timeline([empty]), compare([empty], pictures(1))):
        assert figure_png(figure)


def test_the_timeline_ends_at_each_runs_own_counts():
    clock, count, split = timeline([TRACE]).axes
    assert clock.get_lines()[0].get_xydata()[-1] == pytest.approx([0.03, 5])
    assert count.get_lines()[0].get_xydata().tolist() == [[0, 0], [1, 1], [2, 3], [3, 5]]
    assert [patch.get_width() for patch in split.patches] == pytest.approx([0.003, 0.021, 0.006])
    ticks = [segment[0, 0] for segment in split.collections[0].get_segments()]
    assert ticks == pytest.approx([0.01, 0.02, 0.03]), "a tick at the end of each round"


def test_compare_says_the_counts_of_each_picture():
    figure = compare([TRACE, TRACE], pictures(2))
    assert [axes.get_xlabel() for axes in figure.axes[:2]] == ["5 tokens, 3 passes, 0.03 s\naccepted length 2.00"] * 2
    assert figure.axes[2].get_xlabel() == "squares: 1 kept, 1 redrawn, 1 extra, 1 kept by relaxation, 1 not guessed"
    assert [patch.get_width() for patch in figure.axes[2].patches] == [1] * 5


def test_the_reference_is_grey_and_others_differ():
    drawn = lines(["SJDPipeline", "ARPipeline", "CoolSDPipeline", "LanternPipeline"])
    assert drawn == [LINES[0], REFERENCE_LINE, LINES[1], LINES[2]]
    assert len({(line["linestyle"], line["linewidth"]) for line in drawn}) == 4, "told apart by colour alone"


def test_every_fate_has_a_name_and_a_colour():
    assert set(FATE_NAMES) == set(FATE_COLOURS) == {"d", "k"} | set(FATE_MARKS)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_drawn_twice_gives_the_same_pixels(name: str):
    assert figure_png(FIGURES[name]()) == figure_png(FIGURES[name]())
