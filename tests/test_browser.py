"""The page in a real browser: Debian's chromium, driven by Playwright. A person looks at tests/screenshots/."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

import app


SHOTS = Path(__file__).parent / "screenshots"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
TOTAL = 256  # squares
PATIENCE = 180_000  # ms: only a crowded machine needs it

PIXELS = "document.querySelector('.stage canvas').toDataURL()"
TOKENS = "Number(document.querySelector('.stage').dataset.tokens)"
STATE = "document.querySelector('.stage').dataset.state"
SMALL_TARGETS = """[...document.querySelectorAll('button, input:not([type=range]), .save:not([hidden])')]
    .filter((target) => target.offsetParent && target.getBoundingClientRect().height < 40)
    .map((target) => target.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server over the model that ships."""
    page = app.build(app.EMBEDDED)
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, **app.LAUNCH)
    yield url
    page.close()


@pytest.fixture(scope="module")
def browser() -> Iterator:
    """Chromium. Where it or Playwright is missing, CI fails; elsewhere the tests skip."""
    give_up = pytest.fail if os.environ.get("CI") else pytest.skip
    chromium = shutil.which("chromium")
    if chromium is None:
        give_up("there is no chromium on this machine: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        give_up("playwright is not installed: pip install playwright")
    SHOTS.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=chromium, args=FLAGS)


@pytest.fixture
def visit(browser, address: str) -> Iterator[Callable]:
    """Opens the page; when the test ends, nothing may have been complained of and no other host asked."""
    complaints, hosts, pages = [], set(), []

    def open_page(width: int, theme: str):
        page = browser.new_page(viewport={"width": width, "height": 900}, device_scale_factor=2 if width < 800 else 1)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: hosts.add(request.url.split("/")[2].split(":")[0]))
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}?__theme={theme}")
        page.wait_for_selector("#stage canvas")
        page.wait_for_timeout(500)
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert not complaints, complaints
    assert {host for host in hosts if host} <= {"127.0.0.1", "localhost"}, hosts


def shoot(page, name: str) -> None:
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def test_a_picture_appears_and_stop_freezes_it(visit: Callable):
    page = visit(1440, "light")
    assert page.locator("h1").count() == 1 and page.title() == "Draftboard"
    assert (page.evaluate(STATE), page.is_enabled("#stop")) == ("empty", False)
    shoot(page, "1440-light-empty")
    pixels = [page.evaluate(PIXELS)]
    page.press("#prompt input", "Enter")
    for tokens in (10, 40, 70):
        page.wait_for_function(f"{TOKENS} > {tokens}")
        pixels.append(page.evaluate(PIXELS))
    assert len(set(pixels)) == 4, "the squares stand still"
    assert (page.evaluate(STATE), page.is_enabled("#go"), page.is_enabled("#stop")) == ("live", False, True)

    page.keyboard.press("Escape")
    page.wait_for_function(f"{STATE} == 'stopped'")
    drawn = page.evaluate(TOKENS)
    page.wait_for_timeout(700)
    assert 70 < drawn == page.evaluate(TOKENS) < TOTAL
    assert page.inner_text(".stage .badge") == f"STOPPED AT {drawn}/{TOTAL}"
    assert (page.is_enabled("#go"), page.is_enabled("#stop")) == (True, False)
    shoot(page, "1440-light-stopped")

    page.fill("#prompt input", "")
    page.click("#go")
    page.wait_for_selector("#notice .bad")
    assert page.evaluate(TOKENS) == drawn, "a refused prompt takes the picture away"
    shoot(page, "1440-light-refused")


def test_a_picture_is_finished_and_saved(visit: Callable, tmp_path: Path):
    page = visit(1440, "dark")
    page.fill("#prompt input", "a pandah in the snow")
    page.click("#go")
    page.wait_for_function(f"{TOKENS} > 120")
    shoot(page, "1440-dark-running")
    page.wait_for_function(f"{STATE} == 'done'")
    assert "panda" in page.inner_text("#notice"), "unknown words are not named"
    with page.expect_download() as download:
        page.click(".stage .save")
    download.value.save_as(tmp_path / "saved.png")
    assert download.value.suggested_filename == "a-pandah-in-the-snow-7.png"
    assert Image.open(tmp_path / "saved.png").text["prompt"] == "a pandah in the snow"
    shoot(page, "1440-dark-done")


def test_the_page_fits_a_phone(visit: Callable):
    page = visit(390, "light")
    shoot(page, "390-light-empty")
    page.click("#go")
    page.wait_for_function(f"{TOKENS} > 60")
    page.click("#stop")
    page.wait_for_function(f"{STATE} == 'stopped'")
    for name in ("Sampling", "What it can draw"):
        page.click(f"button:has-text('{name}')")
    assert page.evaluate("document.documentElement.scrollWidth") == 390, "the page scrolls sideways"
    assert page.evaluate(SMALL_TARGETS) == []
    shoot(page, "390-light-stopped")
