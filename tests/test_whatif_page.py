"""What if, Cooling and the map's readings on the page, in Chromium, over the recorded race."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.test_browser import SHOTS, SMALL_TARGETS, STATE, TOKENS, TOTAL, address, model, visit  # noqa: F401  fixtures


MOVES = """() => {
    const times = [];
    for (let delta = 1; delta < 5; delta += 0.05) {
        const start = performance.now();
        window.__whatif.turnDials({ delta });
        times.push(performance.now() - start);
    }
    return times;
}"""
SHADES = """() => {
    const canvas = document.querySelector(".map canvas"), side = canvas.width / 16;
    const pen = canvas.getContext("2d");
    const at = (square) => [(square % 16) * side + 2, Math.floor(square / 16) * side + 2];
    return Array.from({ length: 256 }, (_, square) => [...pen.getImageData(...at(square), 1, 1).data].slice(0, 3));
}"""
DIAL = "#dial-{name}"


def opened(visit: Callable, tab: str, width: int = 1440, theme: str = "light"):  # noqa: F811
    """The page at the end of the recorded race, with a tab open."""
    page = visit(width, theme, motion="reduce")
    page.wait_for_function(f"{TOKENS} == {TOTAL}")
    page.click(f"#tab-{tab}")
    return page


def shades(page) -> np.ndarray:
    return np.array(page.evaluate(SHADES)).sum(-1)


def drag(page, name: str, value: float) -> None:
    page.fill(DIAL.format(name=name), str(value))


def test_a_looser_check_brightens_the_map_and_moves_both_needles(visit: Callable):  # noqa: F811
    page = opened(visit, "whatif")
    before = shades(page)
    assert re.fullmatch(r"\d\.\d\d", page.inner_text(".needles .length"))
    assert page.inner_text(".needles .infidelity") == "0.000"
    drag(page, "delta", 3)
    after = shades(page)
    assert (after >= before - 1).all() and (after > before + 30).sum() > 5, "the map stays as it was"
    was, now = map(float, page.inner_text(".needles .length").split(" → "))
    assert now > was
    was, now = map(float, page.inner_text(".needles .infidelity").split(" → "))
    assert was == 0 < now
    count, rounds = map(int, re.search(r"dice (\d+) of (\d+) rounds would", page.inner_text(".outcome")).groups())
    assert 0 < count <= rounds and page.locator(".chips button").count() == min(count, 30)
    page.screenshot(path=SHOTS / "1440-light-whatif.png", full_page=True)

    page.locator(".chips button").nth(2).click()
    page.wait_for_function(f"{TOKENS} < {TOTAL}")
    said = page.inner_text(".panel .one")
    chances = re.fullmatch(r"Pass \d+, row .*: refused\. With these knobs the chance is .*: kept\.", said)
    assert chances, said
    page.click(".back")
    page.focus(".boards")
    page.keyboard.press("End")
    page.wait_for_function(f"{TOKENS} == {TOTAL}")
    assert (shades(page) == before).all(), "the map does not come back"
    drag(page, "delta", 3)
    page.click("#tab-why")
    page.wait_for_function("!document.querySelector('.legend').textContent.includes('other rule')")
    assert (shades(page) == before).all(), "the other rule outlives its panel"


def test_the_keyboard_moves_a_knob(visit: Callable):  # noqa: F811
    page = opened(visit, "whatif")
    page.focus(DIAL.format(name="delta"))
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".dial output >> nth=0") == "1.05"
    page.click("#tab-cooling")
    page.focus(".handle[data-handle='nu']")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.inner_text(".reads").startswith("δ 1.05, ν 0.10, automatic μ −")


def test_a_move_is_quick(visit: Callable):  # noqa: F811
    """A quarter of the moves, for others share this machine."""
    page = opened(visit, "whatif")
    page.evaluate(MOVES)
    assert np.quantile(page.evaluate(MOVES), 0.25) < 5


def test_the_curve_follows_the_pointer(visit: Callable):  # noqa: F811
    page = opened(visit, "cooling")
    page.locator(".reads").scroll_into_view_if_needed()
    grip = page.locator(".handle[data-handle='delta'] circle >> nth=1").bounding_box()
    x, y = grip["x"] + grip["width"] / 2, grip["y"] + grip["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 30, steps=3)
    page.mouse.up()
    delta = float(re.match(r"δ (\d\.\d\d), ν 0\.00", page.inner_text(".reads")).group(1))
    pixels = 228 / np.log(20 / 0.05)  # of the axis, per e-fold
    assert delta == pytest.approx(np.exp(30 / pixels), rel=0.05)
    grip = page.locator(".handle[data-handle='nu'] circle >> nth=1").bounding_box()
    page.mouse.move(grip["x"] + 9, grip["y"] + 9)
    page.mouse.down()
    page.mouse.move(grip["x"] + 9, grip["y"] + 49, steps=3)
    page.mouse.up()
    reads = page.inner_text(".reads")
    assert float(re.search(r"ν (\d\.\d\d)", reads).group(1)) == pytest.approx(40 / pixels / 3, abs=0.06)
    assert re.search(r"A uniform ω of \d\.\d\d \(dashed\) brings as many at 0\.\d{3}", reads)
    page.click("#tab-whatif")
    assert page.inner_text(".dial output >> nth=0") == re.match(r"δ (\d\.\d\d)", reads).group(1)


@pytest.mark.parametrize(
    ("reading", "title"),
    [("tokens", "What did a check bring?"), ("fate", "Who decided?"), ("entropy", "How sure was the model?")],
)
def test_the_map_has_other_readings(visit: Callable, reading: str, title: str):  # noqa: F811
    page = opened(visit, "why")
    before = shades(page)
    page.select_option(".reading select", reading)
    assert page.inner_text(".map summary") == title
    colours = page.evaluate(SHADES)
    assert (shades(page) != before).sum() > 50
    if reading == "fate":
        fates = page.evaluate("window.__whatif.subject().lane.squares.map(({ fate }) => fate)")
        known = {"k": [0, 68, 136], "r": [187, 85, 102], "x": [102, 204, 238]}
        assert all(colours[square] == known[fate] for square, fate in enumerate(fates) if fate in known)
    page.select_option(".reading select", "chance")
    assert (shades(page) == before).all()


def test_what_was_tried_runs_for_real(visit: Callable, model):  # noqa: F811
    model.set()
    page = opened(visit, "whatif")
    drag(page, "delta", 2)
    drag(page, "nu", 0.4)
    page.wait_for_function("page.known && page.known.method")
    page.click(".acts .real")
    page.wait_for_function(f"{STATE} == 'live' || {STATE} == 'done'")
    known = page.evaluate("page.known")
    assert known["method"] == "CoolSDPipeline"
    assert (known["CoolSDPipeline-delta"], known["CoolSDPipeline-nu"], known["CoolSDPipeline-mu"]) == (2, 0.4, None)
    assert page.input_value("#seed input") == "4"
    page.wait_for_selector("#omega svg")
    assert "Automatic μ is −" in page.inner_text("#omega")
    page.wait_for_function(f"{STATE} == 'done'")
    asked = page.evaluate("JSON.parse(JSON.stringify(window.__whatif.subject().settings))")
    assert (asked["delta"], asked["nu"]) == (2, 0.4)
    page.click("#tab-whatif")
    assert page.inner_text(".panel .lead").startswith("What if CoolSD had other knobs?")


@pytest.mark.parametrize("tab", ["whatif", "cooling"])
def test_the_panels_fit_a_telephone(visit: Callable, tab: str):  # noqa: F811
    page = opened(visit, tab, 390, "dark")
    page.evaluate("window.__whatif.turnDials({ delta: 2, nu: 0.3 })")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(SMALL_TARGETS) == []
    page.screenshot(path=SHOTS / f"390-dark-{tab}.png", full_page=True)
