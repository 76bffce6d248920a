"""Runs against the clock: tokens over each run's own seconds and over passes, and where the seconds go."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipelines.primitives.trace import Step, Trace
from visualize.events import short_name
from visualize.style import SHARES, lines


def timeline(traces: Sequence[Trace]) -> Figure:
    """Tokens over seconds and over passes, a line per run; below, where each run's seconds go.

    Seconds are each run's own: those of its draft, target and rest, one round after another. A bar bears a tick at
    the end of every round.
    """
    styles = lines([trace.header.method for trace in traces])
    names = [short_name(trace.header.method) for trace in traces]
    figure = Figure(figsize=(8.0, 3.4 + 0.35 * len(traces)), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(5, 1 + len(traces)))
    clock, count = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
    for trace, name, style in zip(traces, names, styles):
        _climb(clock, trace, _ends(trace), label=name, **style)
        _climb(count, trace, np.arange(1, trace.nfe + 1), **style)
    clock.set(xlabel="own seconds", ylabel="tokens")
    count.set(xlabel="passes", ylabel="tokens")
    for axes in (clock, count):
        axes.set(xlim=(0, None), ylim=(0, None))
    clock.legend(loc="upper left", frameon=False)
    _split(figure.add_subplot(grid[1, :]), traces, names)
    return figure


def _climb(axes: Axes, trace: Trace, at: np.ndarray, **line: object) -> None:
    """A step up where each round ends."""
    tokens = np.cumsum([len(step.committed) for step in trace.steps])
    axes.step([0, *at], [0, *tokens], where="post", **line)


def _ends(trace: Trace) -> np.ndarray:
    """[rounds] the run's own clock at the end of each, in seconds."""
    return np.cumsum([step.seconds for step in trace.steps])


def _split(axes: Axes, traces: Sequence[Trace], names: list[str]) -> None:
    """A bar per run: seconds of the drafter, of the target, of all else."""
    left = np.zeros(len(traces))
    for share, (colour, hatch) in SHARES.items():
        seconds = np.array([_seconds(trace.steps, share) for trace in traces])
        axes.barh(range(len(traces)), seconds, left=left, color=colour, hatch=hatch, edgecolor="white", label=share)
        left += seconds
    for row, trace in enumerate(traces):
        axes.vlines(_ends(trace), row + 0.4, row + 0.48, color="black", linewidth=0.4)
    axes.set(xlabel="own seconds", yticks=range(len(traces)), xlim=(0, None))
    axes.set_yticklabels(names)
    axes.invert_yaxis()
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _seconds(steps: list[Step], share: str) -> float:
    return sum(getattr(step, f"{share}_seconds") for step in steps)
