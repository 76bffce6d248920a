"""The figure of refusals: which guesses count, which bin they fall in, what stands in the picture."""

from dataclasses import replace

import numpy as np
import pytest
from rounds import HEADER, a_round

from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import Trace
from visualize.certainty import by_entropy, certainty, first_guesses


NAN = float("nan")


def picture(entropies: list[float], chances: list[float], method: str = "SJDPipeline") -> Trace:
    """A round a guess, each judged by the root's law."""
    steps = [
        replace(
            a_round(index, index, tokens=(0,), parents=(-1,), accept_prob=(chance,)),
            entropy=np.array([entropy, 9.0], np.float32),
        )
        for index, (entropy, chance) in enumerate(zip(entropies, chances))
    ]
    return Trace(replace(HEADER, method=method), Layout(1, len(steps)), steps)


def test_only_judged_guesses_without_elder_siblings_count():
    step = a_round(tokens=(5, 6, 7, 8), parents=(-1, -1, 1, 1), accept_prob=(0.2, 0.9, 0.4, NAN))
    step = replace(step, entropy=np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32))
    assert first_guesses(step) == pytest.approx(np.array([[1.0, 0.2], [3.0, 0.4]]))
    assert first_guesses(a_round()).shape == (0, 2)


def test_bins_hold_means_and_an_interval_around_them():
    traces = [picture([0.1, 0.2, 1.2], [1.0, 0.8, 0.5]), picture([0.15, 1.3], [0.6, 0.3])]
    sure, unsure = by_entropy(traces, edges=(0.0, 0.5, 2.0))
    assert (sure.guesses, unsure.guesses) == (3, 2)
    assert sure.entropy == pytest.approx(0.15) and sure.chance == pytest.approx(0.8)
    assert unsure.entropy == pytest.approx(1.25) and unsure.chance == pytest.approx(0.4)
    # Pictures stray from the mean by 0.2 and -0.2, and by 0.1 and -0.1: errors 0.4 / 3 and 0.2 / 2.
    assert (sure.low, sure.high) == pytest.approx((0.8 - 1.96 * 0.4 / 3, 1.0))
    assert (unsure.low, unsure.high) == pytest.approx((0.4 - 0.196, 0.4 + 0.196))
    (alone,) = by_entropy(traces[1:], edges=(1.0, 2.0))[-1:]
    assert (alone.low, alone.high) == (0.0, 1.0), "one picture tells no spread"


def test_an_entropy_beyond_the_last_edge_is_in_the_last_bin():
    assert [one.guesses for one in by_entropy([picture([0.0, 99.0], [1.0, 0.0])], edges=(0.0, 1.0, 2.0))] == [1, 1]


def test_the_figure_has_a_line_a_method_through_its_bins():
    traces = [picture([0.1, 3.5], [0.9, 0.2]), picture([0.1, 3.5], [0.8, 0.4], "SpeculativePipeline")]
    traces.append(Trace(HEADER, Layout(1, 1), [a_round()]))  # AR guesses nothing, so it has no line
    axes = certainty(traces).axes[0]
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["SJD", "Speculative"]
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    for line, chances in zip(marks, ([0.9, 0.2], [0.8, 0.4])):
        assert line.get_xdata() == pytest.approx([0.1, 3.5]) and line.get_ydata() == pytest.approx(chances)
