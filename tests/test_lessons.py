"""Lessons: whole, answerable, and set to what the page can do."""

import json

import pytest
import torch

import pipelines
from benchmarks.run import EMBEDDED
from benchmarks.traces import TRACES
from pipelines.base import ARImagePipeline
from pipelines.primitives.trace import load


LESSONS = json.loads((EMBEDDED.parent / "lessons.json").read_text())
TEXTS = ("title", "goal", "question", "action", "why")
PRESET = ("method", "opponent", "settings", "sampling", "prompt", "seed")

each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=[lesson["title"] for lesson in LESSONS])


@pytest.fixture(scope="module")
def shipped() -> ARImagePipeline:
    return pipelines.ARPipeline.from_pretrained(EMBEDDED, dtype=torch.float32)


@each_lesson
def test_a_lesson_is_whole(lesson: dict):
    assert set(lesson) == {*TEXTS, "choices", "answer", "preset"} and set(lesson["preset"]) == set(PRESET)
    assert all(lesson[name].strip() for name in TEXTS)
    assert len(lesson["choices"]) == len(set(lesson["choices"])) == 3 and 0 <= lesson["answer"] < 3
    assert len(lesson["title"]) <= 40 and len(lesson["why"].split()) <= 90, "a lesson is read in a minute"


@each_lesson
def test_a_preset_can_be_drawn(lesson: dict, shipped: ARImagePipeline):
    preset = lesson["preset"]
    assert preset["opponent"] in (None, *pipelines.METHODS) and preset["opponent"] != preset["method"]
    method = getattr(pipelines, preset["method"])(**shipped.components)
    generator = torch.Generator().manual_seed(preset["seed"])
    stream = method.stream(preset["prompt"], generator=generator, **preset["sampling"], **preset["settings"])
    assert not stream.unknown, "a word that the model does not know"
    assert stream.trace.header.settings.items() >= (preset["settings"] | preset["sampling"]).items()


def test_numbers_that_lessons_name_are_true(shipped: ARImagePipeline):
    first, second = LESSONS[:2]
    layout, plain = shipped.layout(), load(TRACES / "ar.npz")
    assert f"{layout.rows} rows of {layout.cols} squares" in first["question"]
    assert first["choices"][first["answer"]] == str(plain.nfe) == str(layout.rows * layout.cols)
    window = pipelines.SJDPipeline(**shipped.components).settings.window
    assert f"the next {window - 1} squares" in second["question"] and not second["preset"]["settings"]


def passes(lesson: dict, shipped: ARImagePipeline) -> int:
    preset = lesson["preset"]
    stream = getattr(pipelines, preset["method"])(**shipped.components).stream(
        preset["prompt"],
        generator=torch.Generator().manual_seed(preset["seed"]),
        **preset["sampling"],
        **preset["settings"],
    )
    return sum(1 for _ in stream)


def test_what_lessons_predict_comes_true(shipped: ARImagePipeline):
    """Rounding differs between machines, and with it runs of one seed; so answers must hold with room to spare."""
    by_title = {lesson["title"]: lesson for lesson in LESSONS}
    guessing = passes(by_title["Guess, then check once"], shipped)
    harder, leaning = by_title["Why pictures are hard"], by_title["No second network"]
    assert 105 < guessing < 135 and "about 120 passes" in harder["question"]
    assert harder["choices"][harder["answer"]] == "More" and passes(harder, shipped) > 1.1 * guessing
    assert leaning["choices"][leaning["answer"]] == "About as many passes as SJD"
    assert passes(leaning, shipped) == pytest.approx(guessing, rel=0.15)
