"""What a visitor takes along: one file that holds a whole run."""

import base64
import io
import zipfile
from dataclasses import dataclass, replace

import numpy as np
import pytest
from PIL import Image

from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import Trace, load
from tests.rounds import HEADER, a_round
from visualize.lessons import verdicts
from visualize.parcel import Shelf


DEFAULTS = {"ARPipeline": {"top_k": 0}, "SJDPipeline": {"top_k": 0, "window": 16}}


@dataclass
class Shown:
    traces: list[Trace]

    def pictures(self) -> list[Image.Image | None]:
        return [Image.new("RGB", (32, 16)) if trace.steps else None for trace in self.traces]


def trace(method: str, settings: dict) -> Trace:
    """A picture of 1 x 2 squares; SJD guessed the second, and was refused."""
    guess = {"tokens": [3], "parents": [-1], "accept_prob": [0.5], "dice": [0.7]} if method == "SJDPipeline" else {}
    steps = [a_round(0, 0, committed=[5]), a_round(1, 1, committed=[5], **guess)]
    return Trace(replace(HEADER, method=method, settings=settings, prompt="a fox"), Layout(1, 2), steps)


@pytest.fixture
def race() -> Shown:
    return Shown([trace("ARPipeline", {"top_k": 0}), trace("SJDPipeline", {"top_k": 0, "window": 4})])


def unpacked(url: str) -> dict[str, bytes]:
    assert url.startswith("data:application/zip;base64,")
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(url.split(",", 1)[1]))) as files:
        return {name: files.read(name) for name in files.namelist()}


def call(task, *arguments):
    return task(*arguments)


def test_a_parcel_holds_traces_pictures_figures_and_code(race: Shown, tmp_path):
    files = unpacked(Shelf(Shown([]), "models/small", DEFAULTS).pack(race, call))
    assert set(files) == {
        *("AR.npz", "AR.png", "AR.py", "SJD.npz", "SJD.png", "SJD.py", "SJD acceptance.png"),
        *("pictures.png", "race.gif", "timeline.png"),
    }
    (tmp_path / "SJD.npz").write_bytes(files["SJD.npz"])
    assert load(tmp_path / "SJD.npz").tokens.tolist() == [5, 5]
    assert Image.open(io.BytesIO(files["AR.png"])).text["prompt"] == "a fox"
    assert "window=4" in files["SJD.py"].decode() and "'models/small'" in files["SJD.py"].decode()
    for name in ("pictures.png", "timeline.png", "SJD acceptance.png"):
        assert np.array(Image.open(io.BytesIO(files[name]))).std() > 0, f"{name} is blank"


def test_a_lane_without_a_square_is_left_out(race: Shown):
    race.traces[0].steps.clear()
    files = unpacked(Shelf(Shown([]), "models/small", DEFAULTS).pack(race, call))
    assert "SJD.npz" in files and "AR.npz" not in files


def test_nothing_shown_is_nothing_to_take(race: Shown):
    shelf = Shelf(Shown([]), "models/small", DEFAULTS)
    assert (shelf.pack(None, call), shelf.listing()) == ("", None)


def test_before_the_first_run_the_recorded_one_is_taken(race: Shown):
    shelf = Shelf(race, "models/small", DEFAULTS)
    assert "SJDPipeline" in shelf.listing() and "SJD.npz" in unpacked(shelf.pack(None, call))
    assert "ARPipeline" in shelf.listing(Shown(race.traces[:1]))


def test_a_verdict_says_whether_and_why():
    lesson = {"choices": ["16", "256"], "answer": 1, "why": "One pass brings one square."}
    said = verdicts(lesson)
    assert said["16"].startswith("**Not so: 256.**") and said["256"].startswith("**Right: 256.**")
    assert set(said) == {"", "16", "256"} and all(text.endswith(lesson["why"]) for text in said.values())
