"""The moving picture of a race shows every lane as far as its own clock says."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import Trace
from tests.rounds import HEADER, a_round
from visualize import film


def lane(seconds: list[float], method: str) -> Trace:
    steps = [replace(a_round(at, at, committed=[at]), target_seconds=s) for at, s in enumerate(seconds)]
    steps = [replace(step, draft_seconds=0.0, rest_seconds=0.0) for step in steps]
    return Trace(replace(HEADER, method=method), Layout(2, 2), steps)


@pytest.fixture
def race() -> list[Trace]:
    return [lane([1.0, 1.0, 1.0, 1.0], "ARPipeline"), lane([0.5, 0.5, 0.5, 0.5], "SJDPipeline")]


PICTURES = [Image.new("RGB", (32, 32), colour) for colour in ("#c00000", "#0000c0")]


def bare_squares(one: Image.Image, index: int) -> list[bool]:
    """Of a lane's four squares, which are still bare: read at their middles."""
    left = film.GAP + index * (film.SIDE + film.GAP)
    middles = [(left + x, film.GAP + y) for y in (64, 192) for x in (64, 192)]
    return [np.ptp(np.array(one.convert("RGB").getpixel(at), int)) < 60 for at in middles]


def test_a_run_has_drawn_what_its_clock_says(race: list[Trace]):
    assert [film.drawn_at(race[0], seconds) for seconds in (0, 0.99, 1.0, 2.5, 9)] == [(n, n) for n in (0, 0, 1, 2, 4)]


def test_lanes_run_on_their_own_clocks(race: list[Trace]):
    one = film.frame(race, PICTURES, 1.0)
    assert bare_squares(one, 0) == [False, True, True, True] and bare_squares(one, 1) == [False, False, True, True]


def test_the_film_ends_with_whole_pictures_and_stays(race: list[Trace]):
    shown = Image.open(io.BytesIO(film.film(race, PICTURES)))
    assert shown.n_frames == film.FRAMES
    assert all(bare_squares(shown, 0))
    shown.seek(film.FRAMES - 1)
    assert not any(bare_squares(shown, 0) + bare_squares(shown, 1))
    assert shown.info["duration"] == pytest.approx(film.LAST_FRAME_MS, abs=10)
