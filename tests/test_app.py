"""The page's handlers, pulled to their end on a tiny real model."""

import itertools
import json
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import app
import pipelines
from pipelines import contest
from pipelines.contest import Ask
from pipelines.menu import open_menu
from tests import tiny
from tests.visit import PROMPT, SEED, held, open_studio, opened, save_model, tokens_alone
from visualize import broadcast, events
from visualize.notes import note
from visualize.studio import WAITING, Message, Studio


WORKER = ThreadPoolExecutor(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder: Path) -> dict[str, Any]:
    return app.load(folder)


@pytest.fixture
def studio(model: dict[str, Any]) -> Studio:
    return open_studio(WORKER, held(model))


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message after every round, pixels with every message, lanes in turns by rounds."""
    monkeypatch.setattr(contest, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(broadcast, "MESSAGE_SECONDS", 0.0)
    monkeypatch.setattr(broadcast, "KEYFRAME_SECONDS", 0.0)


def ask(*methods: str, prompt: str = PROMPT, seed: Any = SEED, **sampling: Any) -> Ask:
    return Ask(prompt, seed, [(name, {}) for name in methods or ("ARPipeline",)], {"guidance_scale": 2.0} | sampling)


def messages(studio: Studio, wanted: Ask) -> list[Message]:
    return list(studio.draw(lambda: wanted))


def texts(said: list[Message]) -> list[str]:
    return [one.text for one in said if one.text is not None]


def notes(said: list[Message]) -> list[str]:
    return [one.notice for one in said if one.notice]


def test_a_race_draws_what_each_pipeline_draws(studio: Studio, model: dict[str, Any]):
    run = events.read(texts(messages(studio, ask("ARPipeline", "SJDPipeline")))[-1])
    assert run.names == ["AR", "SJD"]
    for lane, method in zip(run.lanes, ("ARPipeline", "SJDPipeline")):
        assert lane.tokens.tolist() == tokens_alone(model, PROMPT, SEED, method)
        assert lane.reason == events.DONE
    assert run.lanes[0].passes == 16 > run.lanes[1].passes, "no guess of SJD was kept"


def test_any_two_methods_race_and_one_alone(studio: Studio, folder: Path):
    names = list(open_menu(folder, tiny.VOCAB).methods)
    for methods in [*itertools.pairwise(names), (names[-1], names[-1])]:
        run = events.read(texts(messages(studio, ask(*methods)))[-1])
        assert [lane.drawn for lane in run.lanes] == [16, 16], methods
        assert len(set(run.names)) == 2, "two lanes of one name"
        assert [lane["method"] for lane in run.about["lanes"]] == list(methods)
    assert events.read(texts(messages(studio, ask("SJDPipeline")))[-1]).names == ["SJD"]


def test_lanes_take_turns_by_their_own_clocks(studio: Studio):
    text = texts(messages(studio, ask("ARPipeline", "SJDPipeline")))[-1]
    clocks, steps = [0.0, 0.0], [0.0, 0.0]
    for line in itertools.takewhile(lambda line: line[0] != "E", text.splitlines()):
        if line[0] == "R":
            _, lane, _, _, clock, *_ = line.split(",")
            steps[int(lane)] = max(steps[int(lane)], float(clock) - clocks[int(lane)])
            clocks[int(lane)] = float(clock)
            ahead = max(steps) + 1000 * contest.TURN_SECONDS + 0.02
            assert abs(clocks[0] - clocks[1]) <= ahead, "one lane runs ahead by more than a turn and a step"


def test_messages_only_add_to_the_text(studio: Studio, eager: None):
    sent = texts(messages(studio, ask("ARPipeline", "SJDPipeline")))
    assert len(sent) > 16 and all(after.startswith(before) for before, after in zip(sent, sent[1:]))


def test_messages_are_coalesced(studio: Studio, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(broadcast, "MESSAGE_SECONDS", 3600.0)
    assert len(messages(studio, ask())) == 2, "the opening and the end"


def test_pixels_come_with_what_is_new_and_at_the_end(studio: Studio, eager: None):
    said = messages(studio, ask("ARPipeline", "SJDPipeline"))
    frames = [pixels for _, pixels, _, _ in said if isinstance(pixels, str) and pixels]
    for frame in frames[:-1]:
        assert len(frame.splitlines()) == 1, "one lane took one step"
        assert opened(frame).format == "JPEG" and opened(frame).size == (32, 32)
    last = frames[-1].splitlines()
    assert [line.split(",")[:2] for line in last] == [["0", "16"], ["1", "16"]]
    assert [opened(line).format for line in last] == ["PNG", "PNG"]


def test_the_last_pictures_are_the_pipelines_and_tell_their_origin(studio: Studio, model: dict[str, Any]):
    *_, (_, pixels, _, _) = messages(studio, ask("ARPipeline", "SJDPipeline"))
    for line, method in zip(pixels.splitlines(), ("ARPipeline", "SJDPipeline"), strict=True):
        pipe = getattr(pipelines, method)(**model)
        expected = pipe(PROMPT, guidance_scale=2.0, generator=torch.Generator().manual_seed(SEED)).images[0]
        saved = opened(line)
        assert np.array_equal(np.array(saved.convert("RGB")), np.array(expected))
        assert (saved.text["prompt"], saved.text["seed"], saved.text["method"]) == (PROMPT, "7", method)
        assert json.loads(saved.text["settings"])["guidance_scale"] == 2.0


def test_one_run_at_a_time_and_the_others_hear_their_place(
    studio: Studio, model: dict[str, Any], eager: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("visualize.studio.WAITING_SECONDS", 0.0)
    first, second, third = (studio.draw(lambda seed=seed: ask(seed=seed)) for seed in (1, 2, 3))
    sent = [next(first)]
    assert "1 person before you" in next(second)[2] and "2 people before you" in next(third)[2]
    sent.append(next(first))
    second.close()
    assert "1 person before you" in next(third)[2], "who leaves the line still counts"
    assert WAITING in next(third)[2]
    sent += first
    assert events.read(texts(sent)[-1]).lanes[0].tokens.tolist() == tokens_alone(model, PROMPT, 1)
    assert events.read(texts(list(third))[-1]).lanes[0].tokens.tolist() == tokens_alone(model, PROMPT, 3)


def test_a_line_has_an_end(studio: Studio, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(contest, "LONGEST_LINE", 1)
    runs = [studio.draw(ask) for _ in range(3)]
    said = [next(run) for run in runs]
    assert "1 person before you" in said[1][2] and "try again in a minute" in said[2][2]


def test_closing_the_handler_ends_the_drawing(studio: Studio, model: dict[str, Any], eager: None):
    passes = []
    hook = model["transformer"].register_forward_hook(lambda *_: passes.append(1))
    drawing = studio.draw(lambda: ask("ARPipeline", "SJDPipeline"))
    for _ in range(5):
        next(drawing)
    before = len(passes)
    drawing.close()
    hook.remove()
    assert 0 < before == len(passes) < 16
    assert len(messages(studio, ask())) > 1, "a closed run keeps its place in the line"


def stopped(studio: Studio, said: int) -> tuple[str, broadcast.Broadcast]:
    """The event text of a race that was stopped after so many messages, and the race."""
    drawing = studio.draw(lambda: ask("ARPipeline", "SJDPipeline"))
    sent = [next(drawing) for _ in range(said)]
    drawing.close()
    return texts(sent)[-1], sent[0][3]


def test_a_stopped_race_keeps_its_partial_pictures(studio: Studio, eager: None):
    text, run = stopped(studio, 8)
    drawn = [lane.drawn for lane in events.read(text).lanes]
    ended, pixels, *_ = studio.finish(run, "")
    assert ended.startswith(text) and all(0 < count < 16 for count in drawn)
    assert [lane.reason for lane in events.read(ended).lanes] == [events.STOPPED] * 2
    for index, line in enumerate(pixels.splitlines()):
        assert line.startswith(f"{index},{drawn[index]},")
        seen = np.array(opened(line))[..., 3].reshape(4, 8, 4, 8)[:, 0, :, 0].ravel() > 0
        assert seen.tolist() == [square < drawn[index] for square in range(16)]


def test_a_run_that_is_stopped_before_its_first_square_ends_too(studio: Studio):
    ended, pixels, *_ = studio.finish(stopped(studio, 1)[1], "")
    assert [lane.reason for lane in events.read(ended).lanes] == [events.STOPPED] * 2
    assert pixels == ""


def test_finish_leaves_a_finished_picture_alone(studio: Studio):
    for run in (messages(studio, ask())[0][3], None):
        assert studio.finish(run, "")[:2] == (None, None)


def test_finish_clears_only_a_note_of_waiting(studio: Studio):
    assert studio.finish(None, note("Waiting for the model.", WAITING))[2] == ""
    assert studio.finish(None, note("`seed` must be whole.", "bad"))[2] is None


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        *(({"prompt": prompt}, "prompt") for prompt in ("", "  ", "xylophone")),
        *(({"seed": seed}, "seed") for seed in (-1, 2**31, None, 1.5)),
        ({"guidance_scale": 0.5}, "guidance_scale"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_k": 33}, "top_k"),
        ({"top_p": 1.1}, "top_p"),
    ],
)
def test_bad_input_is_one_sentence_and_loses_nothing(studio: Studio, changes: dict[str, Any], names: str):
    (said,) = studio.draw(lambda: ask("ARPipeline", "SJDPipeline", **changes))
    assert said[0] is said[1] is said[3] is None
    assert f"<code>{names}</code>" in said[2] and said[2].count(". ") == 0 and said[2].endswith(".</p>")


def test_unknown_words_are_named_and_the_rest_is_drawn(studio: Studio):
    said = messages(studio, ask(prompt="a pandah on snow & <i>"))
    assert events.read(texts(said)[-1]).lanes[0].reason == events.DONE
    (notice,) = notes(said)
    assert "“pandah” (nearest: panda)" in notice and "&lt;i&gt;" in notice and "<i>" not in notice


@pytest.mark.parametrize("error", [RuntimeError("not enough memory"), MemoryError("not enough memory")])
def test_a_run_that_breaks_keeps_what_is_drawn_and_says_why(studio: Studio, model: dict[str, Any], error: Exception):
    passes = []

    def breaks(*_):
        passes.append(1)
        if len(passes) == 8:
            raise error

    hook = model["transformer"].register_forward_hook(breaks)
    lane = events.read(texts(messages(studio, ask()))[-1]).lanes[0]
    hook.remove()
    assert lane.drawn == 6, "all but the warm-up and the broken pass"
    assert "not enough memory" in lane.reason and "What is drawn stays" in lane.reason


def test_weights_that_do_not_load_are_named(tmp_path: Path):
    broken = Future()
    with pytest.raises(ValueError) as raised:
        app.load(tmp_path)
    broken.set_exception(raised.value)
    (notice,) = notes(messages(open_studio(WORKER, broken), ask()))
    assert "model_index.json" in notice


def test_a_run_waits_for_the_weights(model: dict[str, Any]):
    later = Future()
    drawing = open_studio(WORKER, later).draw(ask)
    assert WAITING in next(drawing)[2], "the visitor is told at once, and can stop"
    later.set_result(model)
    assert events.read(texts(list(drawing))[-1]).lanes[0].reason == events.DONE
