"""A run as text that only grows: the server appends lines, the page draws the new tail, a file keeps the whole.

One event a line, its kind first; a reader passes over kinds that it does not know:

    H,rows,cols,lane,...                 the board, and the names of the pictures drawn side by side on it
    I,{"prompt": ...}                    what the run was asked for, as JSON
    R,lane,round,start,ms,passes         a round of a lane: tokens before it, the lane's own clock, passes so far
    C,lane,square,token,fate             a token joins the picture; squares run row by row; fate d: no guess before it
    E,lane,reason                        the lane ends: done, stopped, or a sentence that says what went wrong
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import Step


DONE = "done"
STOPPED = "stopped"

DRAWN = "d"

LONGEST = 256  # squares along a side; a text of more is not read
MOST_LANES = 8


@dataclass
class Lane:
    """One picture and its own counts. tokens: [rows, cols] int32, -1: none yet; reason: empty until the lane ends."""

    tokens: np.ndarray
    milliseconds: float = 0.0
    passes: int = 0
    reason: str = ""

    @property
    def drawn(self) -> int:
        """Squares that have their token."""
        return int((self.tokens >= 0).sum())


def blank(rows: int, cols: int) -> Lane:
    """A lane before its first token."""
    return Lane(np.full((rows, cols), -1, dtype=np.int32))


class EventLog:
    """The text of a run that is under way; `text` always starts with what it was before."""

    def __init__(self, layout: Layout, names: list[str], about: Mapping[str, Any]):
        """names: one per lane, without commas; about: prompt, seed, settings: what the run is known by, as JSON."""
        self.layout = layout
        self.lanes = [blank(layout.rows, layout.cols) for _ in names]
        self.text = f"H,{layout.rows},{layout.cols},{','.join(names)}\nI,{json.dumps(about, ensure_ascii=False)}\n"

    def add(self, index: int, step: Step) -> None:
        """One more round of a lane."""
        lane = self.lanes[index]
        lane.milliseconds += 1000 * step.seconds
        lane.passes += 1
        self.text += f"R,{index},{step.index},{step.start},{lane.milliseconds:.1f},{lane.passes}\n"
        for position, token in enumerate(step.committed.tolist(), start=step.start):
            square = self.layout.row_col(position)
            if square is None:
                continue
            lane.tokens[square] = token
            self.text += f"C,{index},{square[0] * self.layout.cols + square[1]},{token},{DRAWN}\n"

    def end(self, index: int, reason: str) -> None:
        """The lane draws no more: `DONE`, `STOPPED`, or a sentence for a person."""
        self.lanes[index].reason = " ".join(reason.split())
        self.text += f"E,{index},{self.lanes[index].reason}\n"


@dataclass(frozen=True)
class Recording:
    """What an event text tells."""

    rows: int
    cols: int
    names: list[str]
    lanes: list[Lane]
    about: dict[str, Any] = field(default_factory=dict)


def read(text: str) -> Recording:
    """The run that a text tells of, finished or not. Raises ValueError, naming the line, for any other text."""
    lines = text.split("\n")
    recording = None
    for number, line in enumerate(lines, start=1):
        try:
            recording = _opened(line) if recording is None else recording
            _take(recording, line)
        except (ValueError, IndexError, TypeError, OverflowError, RecursionError):
            raise ValueError(f"Line {number} is not an event of a run: {line[:60]!r}.") from None
    return recording


def _opened(line: str) -> Recording:
    """The empty board of an H line."""
    kind, height, width, *names = line.split(",")
    rows, cols = int(height), int(width)
    is_board = 0 < rows <= LONGEST and 0 < cols <= LONGEST and 0 < len(names) <= MOST_LANES
    if kind != "H" or not is_board:
        raise ValueError(f"expected `H,rows,cols,lane`, got {line!r}")
    return Recording(rows, cols, names, [blank(rows, cols) for _ in names])


def _take(recording: Recording, line: str) -> None:
    """Let one line change the recording."""
    kind, _, rest = line.partition(",")
    if kind == "I":
        recording.about.update(json.loads(rest))
    if kind not in ("R", "C", "E"):
        return
    index, _, rest = rest.partition(",")
    lane = recording.lanes[_count(index)]
    if kind == "R":
        _, _, milliseconds, passes = rest.split(",")
        if not 0 <= float(milliseconds) < math.inf:
            raise ValueError(f"a clock cannot show {milliseconds}")
        lane.milliseconds, lane.passes = float(milliseconds), _count(passes)
    if kind == "C":
        square, token, _ = rest.split(",")
        lane.tokens.flat[_count(square)] = _count(token)
    if kind == "E":
        lane.reason = rest


def _count(digits: str) -> int:
    if int(digits) < 0:
        raise ValueError(f"expected a number of at least 0, got {digits}")
    return int(digits)
