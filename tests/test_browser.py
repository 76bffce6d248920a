"""The page in a real browser: Debian's chromium, driven by Playwright. A person looks at tests/screenshots/."""

import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image

import app
from visualize.recorded import open_recordings


SHOTS = Path(__file__).parent / "screenshots"
TOTAL = 256  # squares
PATIENCE = 180_000  # ms: only a crowded machine needs it

STAGE = "document.querySelector('.stage')"
PIXELS = "document.querySelector('.lane:last-child canvas').toDataURL()"
TOKENS = f"Number({STAGE}.dataset.tokens)"
STATE = f"{STAGE}.dataset.state"
TIME = f"Number({STAGE}.dataset.time)"
VERDICT = "document.querySelector('.verdict').textContent"
SMALL_TARGETS = """[...document.querySelectorAll('button, summary, input:not([type=range]), .save:not([hidden])')]
    .filter((target) => target.offsetParent && target.getBoundingClientRect().height < 40)
    .map((target) => target.outerHTML.slice(0, 120))"""
# Milliseconds from the first paint until the recorded race moves.
FIRST_MOVE = """(() => {
    const look = () => {
        if (Number(document.querySelector(".stage")?.dataset.time) > 0) window.moved = performance.now();
        else requestAnimationFrame(look);
    };
    look();
})()"""
# Milliseconds from a click on Stop until the last change of the number of squares.
STOPPING = """() => new Promise((done) => {
    const tokens = () => [...document.querySelectorAll(".tokens")].map((lane) => lane.textContent).join();
    const start = performance.now();
    let [last, seen] = [start, tokens()];
    document.querySelector("#stop").click();
    const timer = setInterval(() => {
        const now = performance.now();
        if (tokens() !== seen) [last, seen] = [now, tokens()];
        if (now < start + 1500) return;
        clearInterval(timer);
        done(last - start);
    }, 10);
})"""


@pytest.fixture(scope="module")
def model() -> threading.Event:
    """Until it is set, the server's model stays unloaded."""
    return threading.Event()


@pytest.fixture(scope="module")
def address(model: threading.Event) -> Iterator[str]:
    """A server over the model that ships."""
    load = app.load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "load", lambda folder: model.wait() and load(folder))
        page = app.build(app.EMBEDDED)
        _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, **app.LAUNCH)
        yield url
        model.set()
        page.close()


@pytest.fixture
def visit(browser, address: str) -> Iterator[Callable]:
    """Opens the page; when the test ends, nothing may have been complained of and no other host asked."""
    complaints, hosts, pages = [], set(), []

    def open_page(width: int, theme: str, motion: str = "no-preference"):
        scale = 2 if width < 800 else 1
        page = browser.new_page(
            viewport={"width": width, "height": 900}, device_scale_factor=scale, reduced_motion=motion
        )
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: hosts.add(request.url.split("/")[2].split(":")[0]))
        page.set_default_timeout(PATIENCE)
        page.add_init_script(FIRST_MOVE)
        page.goto(f"{address}?__theme={theme}")
        page.wait_for_selector("#stage canvas")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert not complaints, complaints
    assert {host for host in hosts if host} <= {"127.0.0.1", "localhost"}, hosts


@pytest.fixture(scope="module")
def recorded() -> list[list[str]]:
    """The recorded race: its events, split."""
    text = open_recordings(app.ASSETS / "traces", app.EMBEDDED.name).race()
    return [line.split(",") for line in text.splitlines()]


def is_crowded() -> bool:
    """Whether others use this machine so much that a time measured on it says nothing of the page."""
    return os.getloadavg()[0] > 2 * os.cpu_count()


def catch(page, tokens: int) -> None:
    """Wait until a live run has drawn more than so many squares."""
    page.wait_for_function(f"{STATE} == 'done' || {STATE} == 'live' && {TOKENS} > {tokens}")
    if page.evaluate(STATE) == "done" and is_crowded():
        pytest.skip("others use this machine so much that the run was over before the browser could draw it")


def shoot(page, name: str) -> None:
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def tap(page, board: str, square: int) -> None:
    box = page.locator(board).bounding_box()
    row, col = divmod(square, 16)
    at = {"x": (col + 0.5) * box["width"] / 16, "y": (row + 0.5) * box["height"] / 16}
    page.locator(board).click(position=at)


def colour(page, square: int) -> np.ndarray:
    """The map's colour near the corner of a square, where no mark is."""
    look = """(square) => {
        const canvas = document.querySelector(".map canvas"), side = canvas.width / 16;
        const at = [(square % 16) * side + 2, Math.floor(square / 16) * side + 2];
        return [...canvas.getContext("2d").getImageData(...at, 1, 1).data];
    }"""
    return np.array(page.evaluate(look, square)[:3])


def test_a_recorded_race_moves_before_a_model_is_loaded(visit: Callable, model: threading.Event):
    assert not model.is_set()
    page = visit(1440, "light")
    page.wait_for_function("window.moved")
    wait = page.evaluate("moved - performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert wait < 1500 or is_crowded(), f"the race begins {wait:.0f} ms after the first paint"
    assert page.inner_text(".badge").startswith("RECORDED on ")
    page.focus(".boards")
    page.keyboard.press("Home")
    page.wait_for_function(f"{TIME} == 0 && {TOKENS} == 0")
    shots = [page.evaluate(PIXELS)]
    for presses in (1, 30, 30):
        for _ in range(presses):
            page.keyboard.press("ArrowRight")
        page.wait_for_function(f"{TOKENS} >= {sum([1, 30, 30][: len(shots)])}")
        shots.append(page.evaluate(PIXELS))
    assert len(set(shots)) == 4, "the squares stand still"
    assert page.evaluate(VERDICT) == "", "a number is shown before both lanes have ended"
    shoot(page, "1440-light-recorded")

    page.click(".speeds button[value='4']")
    page.focus(".boards")
    page.keyboard.press("Space")
    page.wait_for_function(f"{VERDICT} != ''")
    assert re.search(r"\d× (fewer|the) seconds.* passes", page.evaluate(VERDICT)), page.evaluate(VERDICT)
    assert page.evaluate(TOKENS) == TOTAL
    bar = page.locator(".player input")
    bar.click(position={"x": bar.bounding_box()["width"] / 2, "y": 20})
    page.wait_for_function(f"{TOKENS} > 20 && {TOKENS} < 250")
    assert re.fullmatch(
        r"\d\.\d\d of \d\.\d\d seconds", page.evaluate("document.querySelector('.player input').ariaValueText")
    )
    assert page.inner_text(".play") == "Play", "the scrub bar does not hold the replay"


def test_a_square_tells_why_it_is_as_it_is(visit: Callable, recorded: list[list[str]]):
    page = visit(1440, "dark")
    page.focus(".boards")
    page.keyboard.press("End")
    page.wait_for_selector(".tip")
    square = next(int(cells[2]) for cells in recorded if cells[0] == "C" and cells[-1] == "r")
    number = next(cells[2] for cells in recorded if cells[:2] == ["R", "1"] and int(cells[3]) == square)
    guess = next(cells for cells in recorded if cells[:3] == ["N", "1", number])
    tap(page, ".map .board", square)
    page.wait_for_function("document.querySelector('.why').textContent !== ''")
    why = page.inner_text(".why")
    place = f"Token {square + 1}, row {square // 16 + 1}, column {square % 16 + 1}: the guess had p "
    assert why.startswith(place) and why.endswith("refused. Another token was drawn in its place."), why
    assert page.is_hidden(".tip"), "the hint stays after use"
    assert 1 <= page.locator(".likely li").count() <= 10
    assert "drawn" in page.inner_text(".likely")
    assert page.evaluate("document.querySelectorAll('.legend li:not([hidden]) svg').length") == 3
    exact = 255 * np.array(matplotlib.colormaps["cividis"](float(guess[8]))[:3])
    assert np.abs(colour(page, square) - exact).max() < 6, "the map's colour is not cividis of the chance"
    shoot(page, "1440-dark-square")

    page.click("#tab-numbers")
    page.focus(".boards")
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel-why")
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_function(f"document.querySelector('.why').textContent.startsWith('Token {square + 2},')")
    tap(page, ".lane:first-child .board", 100)
    page.wait_for_function("document.querySelector('.whose').textContent.startsWith('AR, pass 101')")


def test_who_wants_less_motion_sees_the_end(visit: Callable):
    page = visit(1440, "light", motion="reduce")
    page.wait_for_function(f"{TOKENS} == {TOTAL} && {VERDICT} != ''")
    assert page.inner_text(".play") == "Play"


def test_two_lanes_race_and_stop_freezes_both(visit: Callable, model: threading.Event):
    model.set()
    page = visit(1440, "light")
    page.wait_for_timeout(500)
    page.press("#prompt input", "Enter")
    catch(page, 40)
    assert (page.is_enabled("#go"), page.is_enabled("#stop"), page.is_enabled(".play")) == (False, True, False)
    assert page.inner_text(".badge") == "LIVE" and page.evaluate(VERDICT) == ""
    clocks = [float(text[:-2]) for text in page.locator(".clocks output").all_inner_texts()]
    assert abs(clocks[0] - clocks[1]) < 0.5, f"one lane runs ahead: {clocks}"
    took = page.evaluate(STOPPING)
    assert took < 300 or is_crowded(), f"squares appear for {took:.0f} ms after Stop"
    page.wait_for_function(f"{STATE} == 'stopped'")
    counts = [text.split()[0] for text in page.locator(".tokens").all_inner_texts()]
    assert page.inner_text(".badge") == f"STOPPED AT {' AND '.join(counts)} OF {TOTAL}"
    assert "Not compared" in page.evaluate(VERDICT)
    assert (page.is_enabled("#go"), page.is_enabled("#stop")) == (True, False)
    shoot(page, "1440-light-stopped")

    page.fill("#prompt input", "")
    page.click("#go")
    page.wait_for_selector("#notice .bad")
    assert int(counts[-1]) == page.evaluate(TOKENS), "a refused prompt takes the picture away"
    shoot(page, "1440-light-refused")


def test_a_race_is_finished_replayed_and_saved(visit: Callable, model: threading.Event, tmp_path: Path):
    model.set()
    page = visit(1440, "dark")
    page.wait_for_timeout(500)
    page.fill("#prompt input", "a pandah in the snow")
    page.click("#go")
    catch(page, 120)
    shoot(page, "1440-dark-running")
    page.wait_for_function(f"{STATE} == 'done' && {VERDICT} != ''")
    assert "panda" in page.inner_text("#notice"), "unknown words are not named"
    with page.expect_download() as download:
        page.click(".lane:last-child .save")
    download.value.save_as(tmp_path / "saved.png")
    assert download.value.suggested_filename == "a-pandah-in-the-snow-7-sjd.png"
    assert Image.open(tmp_path / "saved.png").text["prompt"] == "a pandah in the snow"
    shoot(page, "1440-dark-done")
    page.click(".play")
    page.wait_for_function(f"{TOKENS} < 250")
    page.wait_for_function(f"{VERDICT} != ''")


def test_the_page_fits_a_phone(visit: Callable, model: threading.Event):
    model.set()
    page = visit(390, "light")
    page.wait_for_function(f"{VERDICT} != ''")
    widths = [box.bounding_box()["width"] for box in page.locator(".lane .board").all()]
    assert len(widths) == 2 and min(widths) >= 172, widths
    assert page.is_hidden(".map .board"), "the map is not folded"
    shoot(page, "390-light-recorded")
    page.click(".map summary")
    tap(page, ".map .board", 100)
    page.wait_for_selector(".why:has-text('Token 101')")
    shoot(page, "390-light-square")
    page.click("#go")
    catch(page, 60)
    page.click("#stop")
    page.wait_for_function(f"{STATE} == 'stopped'")
    for name in ("Sampling", "What it can draw"):
        page.click(f"button:has-text('{name}')")
    assert page.evaluate("document.documentElement.scrollWidth") == 390, "the page scrolls sideways"
    assert page.evaluate(SMALL_TARGETS) == []
    shoot(page, "390-light-stopped")
