"""The tab of growth in Chromium, over the recorded race, against what is read off the recorded run."""

import re
from collections.abc import Callable

import numpy as np
import pytest

import app
from pipelines.primitives.trace import load
from tests.test_browser import SHOTS, TIME, TOKENS, TOTAL, address, model, visit  # noqa: F401  fixtures
from visualize import past
from visualize.growth import longest_watched


LINES = """[...document.querySelectorAll('svg.growth g.placed > path:not(.rise)')].map((path) =>
    path.getAttribute("d").slice(1).split("L").map((point) => point.split(" ").map(Number)))"""
NOW = "document.querySelector('svg.growth .now').getAttribute('d')"


@pytest.fixture(scope="module")
def run():
    return load(app.ASSETS / "traces" / "sjd.npz")


def opened(visit: Callable, width: int = 1440, theme: str = "light"):  # noqa: F811
    """The page at the end of the recorded race, with the tab open."""
    page = visit(width, theme, motion="reduce")
    page.wait_for_function(f"{TOKENS} == {TOTAL}")
    page.click("#tab-growth")
    page.wait_for_selector("svg.growth")
    return page


def test_lines_are_the_probabilities_of_the_run(visit: Callable, run):  # noqa: F811
    page = opened(visit)
    step, offset = longest_watched(run)
    assert page.inner_text("#panel-growth .lead").startswith(f"Square {step.start + offset + 1}, ")
    probs = past.past(step, offset)[-past.TOLD_PASSES :, 0]
    (line,) = page.evaluate(LINES)
    heights = np.array(line)[:, 1]
    assert len(line) == len(probs)
    slope, start = np.polyfit(np.log10(probs), heights, 1)
    assert slope < 0 and np.abs(np.log10(probs) * slope + start - heights).max() < 0.2
    page.screenshot(path=SHOTS / "1440-light-growth.png", full_page=True)


def test_a_tapped_pass_moves_the_stage_and_the_stage_marks_its_pass(visit: Callable, run):  # noqa: F811
    page = opened(visit)
    assert not page.evaluate(NOW)
    (line,) = page.evaluate(LINES)
    box = page.locator("svg.growth").bounding_box()
    page.mouse.click(box["x"] + line[3][0] + 2, box["y"] + 60)
    page.wait_for_function(NOW)
    step, offset = longest_watched(run)
    chosen = step.index + 1 - len(past.past(step, offset)[-past.TOLD_PASSES :]) + 1 + 3
    assert int(page.inner_text(".lane:last-child .passes")) == chosen
    assert page.evaluate(NOW).startswith(f"M{line[3][0]:g} ")
    before = page.evaluate(TIME)
    page.focus("svg.growth")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"{TIME} > {before}")
    assert int(page.inner_text(".lane:last-child .passes")) == chosen + 1
    assert page.evaluate(NOW).startswith(f"M{line[4][0]:g} ")


def test_the_share_of_the_run_stands_beside_chance(visit: Callable, run):  # noqa: F811
    page = opened(visit)
    kept = [one for one in past.checked(run) if one.is_kept]
    share, _, number = past.shares(kept, 3)
    said = page.inner_text("#panel-growth .share")
    assert f"of {number} kept guesses" in said and f"{share:.0%}".replace("%", " %") in said
    assert said.endswith("it would be 4.2 %.")


def test_another_square_of_the_window_is_a_tap_away(visit: Callable):  # noqa: F811
    page = opened(visit, 390, "dark")
    other = page.locator(".siblings button").nth(2)
    square = re.match(r"Square \d+", other.get_attribute("aria-label")).group()
    assert other.bounding_box()["height"] >= 40
    other.click()
    page.wait_for_function(f"document.querySelector('#panel-growth .lead b').textContent.startsWith('{square},')")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
