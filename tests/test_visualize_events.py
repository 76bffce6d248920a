"""The event text of a run: it only grows, and it says again what the steps said."""

import numpy as np
import pytest

from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import Step
from visualize import events


ABOUT = {"prompt": "a fox,\nby a “river”", "seed": 7, "settings": {"top_k": 5}}


def step(index: int, start: int, *tokens: int) -> Step:
    """A round of 10 ms that committed `tokens`."""
    none, empty = np.empty(0, np.int32), np.empty(0)
    rest = {"draft_calls": 0, "draft_seconds": 0.001, "target_seconds": 0.008, "rest_seconds": 0.001, "notes": {}}
    committed = np.array(tokens, np.int32)
    return Step(index, start, none, none, empty, empty, empty, empty, none, committed, none, empty, empty, **rest)


def test_a_run_reads_back_as_it_was():
    log = events.EventLog(Layout(2, 2), ["AR"], ABOUT)
    for index, token in enumerate((11, 12, 13, 14)):
        log.add(0, step(index, index, token))
    log.end(0, events.DONE)
    run = events.read(log.text)
    lane = run.lanes[0]
    assert (run.rows, run.cols, run.names, run.about) == (2, 2, ["AR"], ABOUT)
    assert (lane.tokens.tolist(), lane.drawn, lane.passes, lane.reason) == ([[11, 12], [13, 14]], 4, 4, "done")
    assert lane.milliseconds == pytest.approx(40)


def test_an_unfinished_run_reads_back_with_its_holes():
    log = events.EventLog(Layout(2, 2), ["AR"], ABOUT)
    log.add(0, step(0, 0, 11))
    lane = events.read(log.text).lanes[0]
    assert (lane.tokens.tolist(), lane.reason) == ([[11, -1], [-1, -1]], "")


def test_the_text_only_grows():
    log = events.EventLog(Layout(2, 2), ["AR"], ABOUT)
    texts = [log.text]
    for index in range(4):
        log.add(0, step(index, index, index))
        texts.append(log.text)
    log.end(0, "It broke.\nTry again.")
    texts.append(log.text)
    assert all(after.startswith(before) and len(after) > len(before) for before, after in zip(texts, texts[1:]))
    assert all(text.endswith("\n") for text in texts), "a line is sent in two halves"


def test_two_lanes_keep_their_own_pictures_and_clocks():
    log = events.EventLog(Layout(1, 3), ["AR", "SJD"], ABOUT)
    log.add(0, step(0, 0, 5))
    log.add(1, step(0, 0, 6))
    log.add(1, step(1, 1, 7, 8))
    log.end(1, events.STOPPED)
    first, second = events.read(log.text).lanes
    assert (first.tokens.tolist(), first.passes, first.reason) == ([[5, -1, -1]], 1, "")
    assert (second.tokens.tolist(), second.passes, second.reason) == ([[6, 7, 8]], 2, "stopped")
    assert second.milliseconds == pytest.approx(20)


def test_forced_tokens_fill_no_square():
    layout = Layout(2, 2, forced={2: 99, 5: 99})
    log = events.EventLog(layout, ["AR"], ABOUT)
    for position, token in enumerate((1, 2, 99, 3, 4, 99)):
        log.add(0, step(position, position, token))
    lane = events.read(log.text).lanes[0]
    assert (lane.tokens.tolist(), lane.passes) == ([[1, 2], [3, 4]], 6)


def test_unknown_kinds_are_passed_over():
    text = events.EventLog(Layout(1, 1), ["AR"], ABOUT).text
    assert events.read(text + "Z,what,ever\nC,0,0,4,d\n").lanes[0].tokens.tolist() == [[4]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "H,2\n",
        "H,2,2\n",
        "H,2,99999999,AR\n",
        "H,2,x,AR\n",
        "R,0,0,0,1.0,1\n",
        "H,2,2,AR\nC,0,4,1,d\n",
        "H,2,2,AR\nC,1,0,1,d\n",
    ]
    + ["H,2,2,AR\nI,{broken\n", "H,2,2,AR\nR,0,0\n", "H,2,2,AR\nC,0,1,seven,d\n"]
    + ["H,2,2,AR\nC,0,1,99999999999,d\n", "H,2,2,AR\nI,[7]\n"],
)
def test_a_text_that_is_none_is_refused_by_its_line(text: str):
    with pytest.raises(ValueError, match=r"^Line \d is not an event of a run: .*\.$"):
        events.read(text)


@pytest.mark.parametrize(
    "text",
    [
        "H,2,2" + "," * 9,
        "H,2,2,AR\nC,0,-1,3,d",
        "H,2,2,AR\nC,-1,0,3,d",
        "H,2,2,AR\nC,0,0,-7,d",
        "H,2,2,AR\nR,0,0,0,nan,1",
        "H,2,2,AR\nI," + "[" * 100_000,
    ],
)
def test_a_text_that_no_run_wrote_is_refused(text: str):
    with pytest.raises(ValueError, match="is not an event of a run"):
        events.read(text)
