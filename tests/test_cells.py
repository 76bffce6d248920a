"""The map as a table says of every square what the map's colour and mark say."""

from collections.abc import Iterator

import pytest

import app
from visualize.recorded import open_recordings


SCRIPT = "\n".join(app.asset(f"{name}.js") for name in ("run", "canvas", "words", "cells")).replace(
    'find(".cells").ontoggle = showCells;', ""
)
TABLE = f"""(text) => {{
    {SCRIPT}
    let run = null;
    for (const line of text.split("\\n")) if (line) run = takeLine(run, line);
    for (const lane of run.lanes) seek(lane, Infinity);
    return run.lanes.map((lane) => lane.squares.map((_, square) => cellWords(lane, square)));
}}"""


@pytest.fixture(scope="module")
def told(browser) -> Iterator[list[list[str]]]:
    page = browser.new_page()
    yield page.evaluate(TABLE, open_recordings(app.ASSETS / "traces", app.EMBEDDED.name).race())
    page.close()


def test_plain_drawing_has_no_guesses(told: list[list[str]]):
    assert set(told[0]) == {"no guess"} and len(told[0]) == 256


def test_every_fate_and_chance_is_told(told: list[list[str]]):
    fates = {words.split(",")[0] for words in told[1]}
    assert {"kept", "redrawn", "extra", "no guess"} >= fates >= {"kept", "redrawn"} and len(told[1]) == 256
    assert all("%" in words for words in told[1] if words.startswith(("kept", "redrawn")))
