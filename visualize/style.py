"""Colours, marks and captions that every view shares. No meaning rests on colour alone."""

import base64
import textwrap
from collections.abc import Sequence

import numpy as np

from pipelines.primitives.trace import Header
from visualize.events import short_name


# A square that no token has reached, in a saved picture: fully transparent.
PENDING = (0, 0, 0, 0)

# Chances from 0 to 1, never rescaled.
CHANCE_COLOURS = "cividis"

# Fates of squares as `visualize.events` letters them: what they are called, their mark, and their colour. The four
# colours of guessed squares stay apart under every kind of colour blindness.
FATE_NAMES = {"k": "kept", "r": "redrawn", "x": "extra", "l": "kept by relaxation", "d": "not guessed"}
FATE_MARKS = {"r": "×", "x": "+", "l": "~"}
FATE_COLOURS = {"k": "#004488", "r": "#BB5566", "x": "#66CCEE", "l": "#DDAA33", "d": "#BBBBBB"}

# Lines of runs in charts: colour, dashes, width in points. The reference has the first, others the rest in turn.
REFERENCE = "ARPipeline"
REFERENCE_LINE = {"color": "#666666", "linestyle": "-", "linewidth": 1.5}
LINES = (
    {"color": "#0072B2", "linestyle": "-", "linewidth": 2.5},
    {"color": "#E69F00", "linestyle": "--", "linewidth": 1.8},
    {"color": "#CC79A7", "linestyle": ":", "linewidth": 2.2},
)

# Where the seconds of a run go: colour and hatch.
SHARES = {"draft": ("#E69F00", "//"), "target": ("#0072B2", ""), "rest": ("#BBBBBB", "..")}


def lines(methods: Sequence[str]) -> list[dict[str, object]]:
    """How to draw the line of each run, given the class names of their methods. Other than the first three methods
    repeat the lines from the first on.
    """
    others = [index for index, method in enumerate(methods) if method != REFERENCE]
    return [
        REFERENCE_LINE if method == REFERENCE else LINES[others.index(index) % len(LINES)]
        for index, method in enumerate(methods)
    ]


def title(header: Header) -> str:
    """A run in one line."""
    return f"{short_name(header.method)}: {textwrap.shorten(header.prompt, 50, placeholder='…')}"


def hex_colours(palette: np.ndarray) -> str:
    """All colours as one text, six letters each and nothing between them: what a page gets once.

    palette: [V, 3] uint8, the mean colour of each code.
    """
    assert palette.dtype == np.uint8 and palette.shape[1:] == (3,), f"{palette.dtype} {palette.shape}"
    return palette.tobytes().hex()


def byte_vectors(codebook: np.ndarray) -> str:
    """All codes' vectors [V, e], a byte a number, as a page gets them once: `e,scale,base64`.

    A number is (byte - 128) * scale, so it is off by half a scale at most.
    """
    scale = float(np.abs(codebook).max() / 127) or 1.0
    digits = np.round(codebook / scale + 128).astype(np.uint8)
    return f"{codebook.shape[1]},{scale:.6g},{base64.b64encode(digits.tobytes()).decode()}"
