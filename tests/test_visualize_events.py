"""The event text of a run: it only grows, and it says again what the steps said."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import Header, Step, Trace
from visualize import events


ABOUT = {"prompt": "a fox,\nby a “river”", "seed": 7, "lanes": [{"method": "ARPipeline", "settings": {"top_k": 5}}]}
NAN = math.nan
COUNTS = {"draft_calls": 0, "draft_seconds": 0.001, "target_seconds": 0.008, "rest_seconds": 0.001, "notes": {}}


def step(index: int, start: int, *tokens: int) -> Step:
    """A round of 10 ms that committed `tokens`, the last after guesses that were all kept."""
    return guessed(index, start, [Guess(token, number - 1) for number, token in enumerate(tokens[:-1])], list(tokens))


@dataclass
class Guess:
    token: int
    parent: int
    p: float = 0.5
    q: float = 0.25
    chance: float = 1.0
    dice: float = 0.5


def guessed(index: int, start: int, guesses: list[Guess], committed: list[int]) -> Step:
    """A round of 10 ms over any draft; the first children that carry the committed tokens are the path."""
    columns = {name: np.array([getattr(guess, name) for guess in guesses]) for name in ("p", "q", "chance", "dice")}
    path = []
    for token in committed[:-1]:
        above = path[-1] if path else -1
        path.append(next(i for i, guess in enumerate(guesses) if (guess.token, guess.parent) == (token, above)))
    rows = 1 + len(guesses)
    top_tokens = np.arange(2 * rows).reshape(rows, 2)  # row r: tokens 2r and 2r + 1
    top_probs = np.tile([2 / 3, 0.0], (rows, 1))
    return Step(
        index=index,
        start=start,
        tokens=np.array([guess.token for guess in guesses], np.int32),
        parents=np.array([guess.parent for guess in guesses], np.int32),
        p=columns["p"].astype(np.float32),
        q=columns["q"].astype(np.float32),
        accept_prob=columns["chance"],
        dice=columns["dice"],
        path=np.array(path, np.int32),
        committed=np.array(committed, np.int32),
        top_tokens=top_tokens.astype(np.int32),
        top_probs=top_probs.astype(np.float32),
        entropy=np.zeros(rows, np.float32),
        **COUNTS,
    )


def lines(log: events.EventLog, kind: str) -> list[str]:
    return [line for line in log.text.splitlines() if line.startswith(kind)]


def test_a_run_reads_back_as_it_was():
    log = events.EventLog(Layout(2, 2), ["AR"], ABOUT)
    for index, token in enumerate((11, 12, 13, 14)):
        log.add(0, step(index, index, token))
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
    log = events.EventLog(Layout(1, 3), ["AR", "SJD"], {})
    log.add(0, step(0, 0, 5))
    log.add(1, step(0, 0, 6))
    log.add(1, step(1, 1, 7, 8))
    first, second = events.read(log.text).lanes
    assert (first.tokens.tolist(), first.passes, first.reason) == ([[5, -1, -1]], 1, "")
    assert (second.tokens.tolist(), second.passes, second.reason) == ([[6, 7, 8]], 2, "done")
    assert second.milliseconds == pytest.approx(20)


def test_forced_tokens_fill_no_square():
    layout = Layout(2, 2, forced={2: 99, 5: 99})
    log = events.EventLog(layout, ["AR"], ABOUT)
    for position, token in enumerate((1, 2, 99, 3, 4, 99)):
        log.add(0, step(position, position, token))
    lane = events.read(log.text).lanes[0]
    assert (lane.tokens.tolist(), lane.passes) == ([[1, 2], [3, 4]], 6)


def test_the_last_token_ends_the_lane_also_while_another_goes_on():
    log = events.EventLog(Layout(1, 2, forced={2: 99}), ["AR", "SJD"], {})
    log.add(0, step(0, 0, 5, 6))
    assert log.lanes[0].reason == "", "the forced token is still to come"
    log.add(0, step(1, 2, 99))
    assert (log.lanes[0].reason, log.lanes[1].reason) == (events.DONE, "")


def test_every_guess_is_told_with_its_numbers():
    log = events.EventLog(Layout(1, 4), ["SJD"], {})
    log.add(0, step(0, 0, 3))
    refused = Guess(8, 0, p=0.01234567, q=0.5, chance=0.02469134, dice=1 / 3)
    log.add(0, guessed(1, 1, [Guess(7, -1), refused, Guess(9, 1, p=3e-9, chance=NAN, dice=NAN)], [7, 4]))
    assert lines(log, "N") == [
        "N,0,1,0,-1,7,0.5,0.25,1,0.5",
        "N,0,1,1,0,8,0.01235,0.5,0.02469,0.3333",
        "N,0,1,2,1,9,3e-9,0.25,,",
    ]
    assert lines(log, "R")[1] == "R,0,1,1,20.00,2,1.00,8.00"


def test_every_square_names_the_law_that_it_came_from():
    log = events.EventLog(Layout(1, 3), ["tree"], {})
    log.add(0, guessed(0, 0, [Guess(7, -1, dice=1.0), Guess(8, -1), Guess(9, 1)], [8, 9, 4]))
    # Token 8 is a child of the root: row 0. Token 9 hangs on node 1: row 2. Token 4 follows node 2: row 3.
    assert lines(log, "T") == ["T,0,0,0,0.667", "T,0,1,4,0.667", "T,0,2,6,0.667"], "token of probability 0 left out"


CHAIN = [Guess(7, -1), Guess(8, 0)]


@pytest.mark.parametrize(
    ("guesses", "committed", "fates"),
    [
        ([], [7], "d"),
        (CHAIN, [7, 8, 9], "kkx"),
        (CHAIN, [7, 9], "kr"),
        (CHAIN, [9], "r"),
        ([Guess(7, -1, p=0.1, q=0.5, chance=0.4, dice=0.3), Guess(8, 0)], [7, 8, 9], "lkx"),
        ([Guess(7, -1, p=0.1, q=0.5, chance=0.2, dice=0.2)], [9], "r"),
        ([Guess(6, -1), Guess(7, -1), Guess(8, 1)], [7, 9], "kr"),
        ([Guess(6, -1), Guess(7, -1), Guess(8, 0)], [7, 9], "kx"),
    ],
)
def test_fates(guesses: list[Guess], committed: list[int], fates: str):
    log = events.EventLog(Layout(1, 4), ["any"], {})
    log.add(0, guessed(0, 0, guesses, committed))
    assert "".join(line[-1] for line in lines(log, "C")) == fates


def test_a_guess_for_a_forced_position_is_left_out_and_its_children_move_up():
    log = events.EventLog(Layout(2, 1, forced={1: 99}), ["SJD"], {})
    log.add(0, guessed(0, 0, [Guess(7, -1), Guess(99, 0), Guess(8, 1)], [7, 99, 8]))
    assert [line.split(",")[3:6] for line in lines(log, "N")] == [["0", "-1", "7"], ["2", "0", "8"]]
    assert [line.split(",")[2:4] for line in lines(log, "C")] == [["0", "7"], ["1", "8"]]


HEADER = Header("SJDPipeline", "m", "ab", "float32", "2.8", 1, "cpu", {"top_k": 5}, 7, "a fox")


def test_recorded_runs_take_turns_by_their_own_clocks():
    slow = [replace(step(index, index, index), target_seconds=0.028) for index in range(3)]
    fast = [step(0, 0, 5), step(1, 1, 6, 7)]
    traces = [Trace(replace(HEADER, method="ARPipeline"), Layout(1, 3), slow), Trace(HEADER, Layout(1, 3), fast)]
    text = events.replay(traces, device="a machine", date="2026-11-30")
    rounds = [line.split(",")[1:3] for line in text.splitlines() if line[0] == "R"]
    assert rounds == [["0", "0"], ["1", "0"], ["1", "1"], ["0", "1"], ["0", "2"]]
    run = events.read(text)
    assert [lane.reason for lane in run.lanes] == [events.DONE] * 2
    assert (run.names, run.about["recorded"]["date"]) == (["AR", "SJD"], "2026-11-30")
    assert run.asked(1) == {
        "prompt": "a fox",
        "seed": 7,
        "model": "m",
        "method": "SJDPipeline",
        "settings": {"top_k": 5},
    }


def test_a_recording_that_was_stopped_says_so():
    text = events.replay([Trace(HEADER, Layout(1, 3), [step(0, 0, 5)])])
    assert events.read(text).lanes[0].reason == events.STOPPED


def test_two_lanes_of_one_method_have_two_names():
    traces = [Trace(HEADER, Layout(1, 1), []), Trace(HEADER, Layout(1, 1), [])]
    assert events.lane_names(traces) == ["SJD (defaults)", "SJD"]


def test_recordings_of_two_sizes_are_refused():
    with pytest.raises(ValueError, match="one size"):
        events.replay([Trace(HEADER, Layout(1, 3), []), Trace(HEADER, Layout(2, 3), [])])


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
    + ["H,2,2,AR\nC,0,1,99999999999,d\n", "H,2,2,AR\nI,[7]\n"]
    + ['H,2,2,AR\nI,{"lanes": []}\n', 'H,2,2,AR\nI,{"lanes": [7]}\n', 'H,2,2,AR\nI,{"lanes": 7}\n'],
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
