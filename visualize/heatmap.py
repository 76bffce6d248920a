"""Where guessing worked: each square's chance that a guess was kept, with a mark for what became of it."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.path import Path

from pipelines.primitives.trace import Step, Trace
from visualize.events import DRAWN, fates
from visualize.style import CHANCE_COLOURS, FATE_MARKS, FATE_NAMES, title


UNTRIED = {"facecolor": "#EEEEEE", "edgecolor": "#999999", "hatch": "////", "linewidth": 0}
WAVE = Path([(-1, 0), (-0.3, 1.6), (0.3, -1.6), (1, 0)], [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
SHAPES = {"×": "x", "+": "+", "~": WAVE}
MARK_SIZE = 120  # points over the longer side, of a map 300 points wide
OUTLINE, STROKE = ("#000000", 3.0), ("#FFFFFF", 1.4)  # a dark stroke under a white one shows on yellow and on navy


def chances(step: Step) -> list[float]:
    """For each token that a round committed the chance to keep a guess for its square; nan where none was tried.

    1 - prod(1 - accept_prob) over the judged siblings.
    """
    tried = ~np.isnan(step.accept_prob)
    siblings = (tried & (step.parents == parent) for parent in (-1, *step.path))
    return [1 - float(np.prod(1 - step.accept_prob[judged])) if judged.any() else math.nan for judged in siblings]


def chance_grid(trace: Trace) -> np.ndarray:
    """[rows, cols] `chances`, each of the round that settled the square; nan too where there is no token yet."""
    return _on_squares(trace, [chance for step in trace.steps for chance in chances(step)], math.nan)


def fate_grid(trace: Trace) -> np.ndarray:
    """[rows, cols] one letter each, as `visualize.events` has them; empty where there is no token yet."""
    return _on_squares(trace, [fate for step in trace.steps for fate in fates(step)], "")


def acceptance_map(trace: Trace) -> Figure:
    """The squares of a picture by the chance that a guess was kept, 0 to 1 whatever the run, marked with their fates.

    Squares for which nothing was guessed are hatched; those without a token yet are white.
    """
    chance, fate = chance_grid(trace), fate_grid(trace)
    rows, cols = chance.shape
    figure = Figure(figsize=(5.6, 5.2), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(chance, CHANCE_COLOURS, vmin=0, vmax=1, interpolation="nearest")
    figure.colorbar(image, ax=axes, label="chance that a guess was kept", shrink=0.85)
    is_untried = np.isnan(chance) & (fate != "")
    for row, col in np.argwhere(is_untried):
        axes.add_patch(Rectangle((col - 0.5, row - 0.5), 1, 1, **UNTRIED))
    key: list[Any] = [Patch(label=FATE_NAMES[DRAWN], **UNTRIED)] if is_untried.any() else []
    for letter, mark in FATE_MARKS.items():
        count = _draw_marks(axes, fate == letter, mark, MARK_SIZE / max(rows, cols))
        key += [_sample(mark, f"{FATE_NAMES[letter]} ({count})")] if count else []
    axes.set(xlabel="column", ylabel="row", title=title(trace.header))
    axes.set_xticks(*_ticks(cols))
    axes.set_yticks(*_ticks(rows))
    if key:
        figure.legend(handles=key, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _on_squares(trace: Trace, values: list, empty: float | str) -> np.ndarray:
    """[rows, cols] values of the committed tokens; forced ones fill no square."""
    missing = [empty] * (trace.layout.length - len(values))
    return np.array([*values, *missing])[trace.layout.positions]


def _ticks(count: int) -> tuple[range, list[int]]:
    """Where about eight ticks stand, and their labels: people count from 1."""
    places = range(0, count, max(1, count // 8))
    return places, [place + 1 for place in places]


def _draw_marks(axes: Axes, is_here: np.ndarray, mark: str, size: float) -> int:
    """One mark on each square that has it; how many there are."""
    row, col = np.nonzero(is_here)
    for colour, width in (OUTLINE, STROKE):
        axes.plot(col, row, **_stroke(mark, colour, width), markersize=size)
    return len(row)


def _sample(mark: str, label: str) -> Line2D:
    return Line2D([], [], **_stroke(mark, *OUTLINE), markersize=7, label=label)


def _stroke(mark: str, colour: str, width: float) -> dict[str, Any]:
    style = {"marker": SHAPES[mark], "markeredgecolor": colour, "markeredgewidth": width}
    return style | {"markerfacecolor": "none", "linestyle": "none"}
