"""A run as text that only grows: the server appends lines, the page draws the new tail, a file keeps the whole.

One event a line, its kind first; a reader passes over kinds that it does not know. Squares run row by row from 0:

    H,rows,cols,lane,...                 the board, and the names of the pictures drawn side by side on it
    I,{"prompt": ..., "lanes": [...]}    what the run was asked for, as JSON; `lanes`: method and settings of each
    R,lane,round,start,ms,passes,draft,target
                                         a round of a lane: squares before it, the lane's own clock, passes so far;
                                         of this round the milliseconds of drafting and of the target
    N,lane,round,node,parent,token,p,q,chance,dice
                                         a guess of that round; parent -1: the first square after `start`, else the
                                         square after the parent's; chance and dice are empty where never judged
    M,lane,round,name,shape,value,...    what this method alone can tell of the round, see `NOTES`; shape as in 2x5x3,
                                         rows in their order, nothing for nan; and of every method `entropy`, in nats,
                                         of the target's law of each square that the round drew, in their order
    T,lane,square,token,prob,...         the likeliest tokens of the target's law that the square's token came from
    C,lane,square,token,fate             a token joins the picture; fate d: no guess before it, k: guess kept,
                                         l: kept where the exact rule had refused, r: drawn after a refusal,
                                         x: one more, all guesses before it kept
    E,lane,reason                        the lane ends: done, stopped, or a sentence that says what went wrong

Within a round come R, all N, all M, then T and C square by square. Probabilities have four significant digits, in T
three.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import Header, Step, Trace
from visualize import cascade_whatif, past


DONE = "done"
STOPPED = "stopped"

DRAWN, KEPT, LENT, REDRAWN, EXTRA = "d", "k", "l", "r", "x"

# Notes of a step that the page is told -> significant digits. What they mean stands where they are written.
NOTES = {"omega": 4, "excess": 3, "masses": 3, "judged": 6, "parent_offer": 4}
# What is told of notes too large to be told whole -> how, and significant digits.
EXCERPTS = {"offers": (cascade_whatif.level_offers, 4), "alike": (cascade_whatif.alike, 5)}
EXCERPTS |= {"past_tokens": (past.tokens_told, 6), "past_guesses": (past.guesses_told, 6)}
EXCERPTS |= {"past_probs": (past.probs_told, 3), "streaks": (past.streaks, 6)}

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


def told(headers: list[Header]) -> dict[str, Any]:
    """What the lanes were asked for, one header each, as an I line has it."""
    first = headers[0]
    shared = {name: getattr(first, name) for name in ("prompt", "seed", "model", "dtype", "weights_sha256")}
    return shared | {"lanes": [{"method": header.method, "settings": header.settings} for header in headers]}


def short_name(method: str) -> str:
    """A method as people call it: "SJD" of SJDPipeline."""
    return method.removesuffix("Pipeline")


def lane_names(traces: Sequence[Trace]) -> list[str]:
    """Short names, each lane its own: of two lanes of one method the first is the one that keeps to its defaults."""
    names = [short_name(trace.header.method) for trace in traces]
    return names if len(set(names)) == len(names) else [f"{names[0]} (defaults)", *names[1:]]


class EventLog:
    """The text of a run that is under way; `text` always starts with what it was before."""

    def __init__(self, layout: Layout, names: list[str], about: Mapping[str, Any]):
        """names: one per lane, without commas; about: prompt, seed, settings: what the run is known by, as JSON."""
        self.layout = layout
        self.lanes = [blank(layout.rows, layout.cols) for _ in names]
        self.text = f"H,{layout.rows},{layout.cols},{','.join(names)}\nI,{json.dumps(about, ensure_ascii=False)}\n"

    def add(self, index: int, step: Step) -> None:
        """One more round of a lane; its last token ends the lane."""
        lane = self.lanes[index]
        before = lane.drawn
        lane.milliseconds += 1000 * step.seconds
        lane.passes += 1
        share = f"{1000 * step.draft_seconds:.2f},{1000 * step.target_seconds:.2f}"
        lines = [f"R,{index},{step.index},{before},{lane.milliseconds:.2f},{lane.passes},{share}"]
        lines += [f"N,{index},{step.index},{guess}" for guess in _guesses(step, self.layout)]
        lines += [f"M,{index},{step.index},{told}" for told in _notes(step)]
        rows = [0, *(step.path + 1)]  # of the target's laws: each token's parent
        placed = [row for offset, row in enumerate(rows) if self.layout.row_col(step.start + offset) is not None]
        lines += [f"M,{index},{step.index},{_noted('entropy', step.entropy[placed], 3)}"] * bool(placed)
        for offset, (token, row, fate) in enumerate(zip(step.committed, rows, fates(step))):
            if (at := self.layout.row_col(step.start + offset)) is None:
                continue
            lane.tokens[at] = token
            square = at[0] * self.layout.cols + at[1]
            lines += [f"T,{index},{square}{_likeliest(step, row)}", f"C,{index},{square},{token},{fate}"]
        self.text += "\n".join(lines) + "\n"
        if step.start + len(step.committed) == self.layout.length:
            self.end(index, DONE)

    def end(self, index: int, reason: str) -> None:
        """The lane draws no more: `DONE`, `STOPPED`, or a sentence for a person."""
        self.lanes[index].reason = " ".join(reason.split())
        self.text += f"E,{index},{self.lanes[index].reason}\n"


def fates(step: Step) -> list[str]:
    """How each committed token came about, one letter each; the module says what they mean."""
    if not len(step.tokens):
        return [DRAWN]
    exact = step.p.astype(np.float64) / step.q
    kept = [KEPT if step.dice[node] < exact[node] else LENT for node in step.path]
    last = step.path[-1] if len(step.path) else -1
    return [*kept, REDRAWN if (step.parents == last).any() else EXTRA]


def replay(traces: Sequence[Trace], **recorded: str) -> str:
    """The event text of recorded runs of one picture, a lane each, taking turns by their own clocks as in a race.

    recorded: where and when, told in the I line. Raises ValueError where the traces are of boards of different size.
    """
    layout = traces[0].layout
    names = lane_names(traces)
    if any((trace.layout.rows, trace.layout.cols) != (layout.rows, layout.cols) for trace in traces):
        raise ValueError(f"`traces` must be of one size, got {', '.join(names)} of different rows or columns.")
    log = EventLog(layout, names, told([trace.header for trace in traces]) | {"recorded": recorded})
    turns = []
    for index, trace in enumerate(traces):
        begins = np.cumsum([0.0, *(step.seconds for step in trace.steps)])
        turns += [(begin, index, step) for begin, step in zip(begins, trace.steps)]
    for _, index, step in sorted(turns, key=lambda turn: turn[:2]):
        log.add(index, step)
    for index, lane in enumerate(log.lanes):
        if not lane.reason:
            log.end(index, STOPPED)
    return log.text


def _guesses(step: Step, layout: Layout) -> Iterator[str]:
    """Node, parent, token, p, q, chance, dice of each guess for a square; one for a forced position is left out."""
    depth, above = {-1: 0}, {-1: -1}
    for node, (parent, token) in enumerate(zip(step.parents.tolist(), step.tokens.tolist())):
        depth[node] = depth[parent] + 1
        is_forced = layout.row_col(step.start + depth[node] - 1) is None
        above[node] = above[parent] if is_forced else node
        if not is_forced:
            judged = (step.p, step.q, step.accept_prob, step.dice)
            yield f"{node},{above[parent]},{token},{','.join(_digits(values[node]) for values in judged)}"


def _notes(step: Step) -> Iterator[str]:
    """Name, shape and values of each note that the page is told."""
    for name, count in NOTES.items():
        values = step.notes.get(name)
        if values is not None and values.size:
            yield _noted(name, values, count)
    for name, (excerpt, count) in EXCERPTS.items():
        if (values := excerpt(step)) is not None:
            yield _noted(name, values, count)


def _noted(name: str, values: np.ndarray, count: int) -> str:
    """A note as an M line ends, with so many significant digits."""
    return f"{name},{'x'.join(map(str, values.shape))},{','.join(_digits(value, count) for value in values.flat)}"


def _likeliest(step: Step, row: int) -> str:
    pairs = zip(step.top_tokens[row].tolist(), step.top_probs[row])
    return "".join(f",{token},{_digits(prob, 3)}" for token, prob in pairs if prob > 0)


def _digits(number: float, count: int = 4) -> str:
    """So many significant ones; none for nan."""
    return "" if math.isnan(number) else f"{number:.{count}g}".replace("e-0", "e-")


@dataclass(frozen=True)
class Recording:
    """What an event text tells."""

    rows: int
    cols: int
    names: list[str]
    lanes: list[Lane]
    about: dict[str, Any] = field(default_factory=dict)

    def asked(self, index: int) -> dict[str, Any]:
        """What one lane was asked for: prompt, seed, method, settings, model."""
        shared = {name: value for name, value in self.about.items() if name in ("prompt", "seed", "model")}
        return shared | self.about.get("lanes", [{}] * len(self.lanes))[index]


def read(text: str) -> Recording:
    """The run that a text tells of, finished or not. Raises ValueError, naming the line, for any other text."""
    lines = text.split("\n")
    recording = None
    for number, line in enumerate(lines, start=1):
        try:
            recording = _opened(line) if recording is None else recording
            _take(recording, line)
        except (ValueError, IndexError, TypeError, AttributeError, OverflowError, RecursionError):
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
        about = json.loads(rest)
        lanes = about.get("lanes", [{}] * len(recording.lanes))
        if len(lanes) != len(recording.lanes) or not all(isinstance(lane, dict) for lane in lanes):
            raise ValueError(f"expected what {len(recording.lanes)} lanes were asked for, got {lanes!r}")
        recording.about.update(about)
    if kind not in ("R", "C", "E"):
        return
    index, _, rest = rest.partition(",")
    lane = recording.lanes[_count(index)]
    if kind == "R":
        _, _, milliseconds, passes, *_ = rest.split(",")
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
