"""Finished pictures side by side, each with its counts and with what became of its squares."""

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from pipelines.primitives.trace import Trace
from visualize.heatmap import fate_grid
from visualize.style import FATE_COLOURS, FATE_NAMES, title


def compare(traces: Sequence[Trace], pictures: Sequence[Image.Image]) -> Figure:
    """The pictures of some runs with passes, seconds and accepted length, and a bar of their squares' fates.

    pictures: decoded, one per trace.
    """
    figure = Figure(figsize=(3.4 * len(traces), 5.0), layout="constrained")
    axes = figure.subplots(2, len(traces), squeeze=False, height_ratios=(14, 1))
    key = {}
    for trace, picture, above, below in zip(traces, pictures, *axes, strict=True):
        above.imshow(picture, interpolation="nearest")
        above.set(xticks=[], yticks=[], xlabel=counts(trace))
        above.set_title(title(trace.header), fontsize=9)
        key |= _fate_bar(below, fate_grid(trace))
    figure.legend(key.values(), key, loc="outside lower center", ncols=3, frameon=False)
    return figure


def counts(trace: Trace) -> str:
    """Passes, seconds and accepted length of a run in words."""
    line = f"{len(trace.tokens)} tokens, {trace.nfe} passes, {trace.seconds:.2f} s"
    return f"{line}\naccepted length {trace.accepted_length:.2f}"


def _fate_bar(axes: Axes, letters: np.ndarray) -> dict[str, Artist]:
    """Squares of each fate, end to end; what the colours mean, by name."""
    found = {letter: int((letters == letter).sum()) for letter in FATE_COLOURS if letter in letters}
    left, key = 0, {}
    for letter, count in found.items():
        key[FATE_NAMES[letter]] = axes.barh(0, count, left=left, color=FATE_COLOURS[letter], edgecolor="white")
        left += count
    tally = ", ".join(f"{count} {FATE_NAMES[letter]}" for letter, count in found.items())
    axes.set(xlim=(0, letters.size), xticks=[], yticks=[], xlabel=f"squares: {tally}")
    return key
