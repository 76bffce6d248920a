"""Several visitors of one server at once, as browsers talk to it: one event stream each."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import app
import pipelines
from pipelines.menu import open_menu
from tests import tiny
from tests.visit import PROMPT, SCENES, tokens_alone
from visualize import broadcast, events


SIDE = 16  # squares: a race takes long enough to be stopped
PATIENCE = 120  # seconds: only a crowded machine needs it


class Visitor:
    """An open page. Its `heard` grows by what the server says until the run ends, is stopped or the page is closed."""

    def __init__(self, url: str, page: Any) -> None:
        self.url, self.page, self.hash = f"{url}gradio_api", page, f"visitor{id(self)}"
        self.heard: list[dict] = []
        self.http = httpx.Client(timeout=PATIENCE)
        self.closed = threading.Event()

    def ask(self, handler: str, values: list[Any]) -> None:
        """Call a handler of the page and listen."""
        (self.number,) = [number for number, fn in self.page.fns.items() if fn.name == handler]
        ask = {"data": values, "fn_index": self.number, "session_hash": self.hash}
        self.event = self.http.post(f"{self.url}/queue/join", json=ask).json()["event_id"]
        self.ear = threading.Thread(target=self._listen)
        self.ear.start()

    def _listen(self) -> None:
        with self.http.stream("GET", f"{self.url}/queue/data", params={"session_hash": self.hash}) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    self.heard.append(json.loads(line.removeprefix("data: ")))
                    if self.heard[-1]["msg"] == "process_completed" or self.closed.is_set():
                        return

    def stop(self) -> None:
        ask = {"fn_index": self.number, "session_hash": self.hash, "event_id": self.event}
        self.http.post(f"{self.url}/cancel", json=ask)

    def close_tab(self) -> None:
        self.closed.set()
        self.ear.join(PATIENCE)
        self.http.close()

    def wait_for(self, words: str) -> None:
        until = time.monotonic() + PATIENCE
        while not any(words in json.dumps(message) for message in self.heard):
            assert time.monotonic() < until, f"{words!r} is not among {len(self.heard)} messages"
            time.sleep(0.01)

    def last(self) -> list[Any]:
        """What the handler gave in the end."""
        self.ear.join(PATIENCE)
        return self.heard[-1]["output"]["data"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    pipelines.ARPipeline(**tiny.components(SIDE)).save_pretrained(path)
    (path / "scenes.json").write_text(json.dumps(SCENES))
    return path


@pytest.fixture
def visit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(broadcast, "MESSAGE_SECONDS", 0.0)  # a message a round: a race takes seconds
    monkeypatch.setattr("visualize.studio.WAITING_SECONDS", 0.02)
    page = app.build(folder)
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, **app.LAUNCH)
    yield lambda: Visitor(url, page)
    page.close()


def race(folder: Path, seed: int) -> list[Any]:
    return [PROMPT, seed, "ARPipeline", "SJDPipeline", *open_menu(folder, tiny.VOCAB).knobs().values()]


def test_three_visitors_do_not_disturb_each_other(visit: Any, folder: Path):
    stops, closes, stays = visit(), visit(), visit()
    stops.ask("draw", race(folder, 1))
    stops.wait_for("R,0,5,")
    closes.ask("draw", race(folder, 2))
    closes.wait_for("1 person before you")
    stays.ask("draw", race(folder, 3))
    stays.wait_for("2 people before you")

    page = httpx.get(stays.url.removesuffix("gradio_api"), timeout=PATIENCE)
    assert page.status_code == 200 and stops.ear.is_alive(), "the page waits for the end of the run"

    stops.stop()
    stops.ear.join(PATIENCE)
    closes.wait_for("R,0,5,")
    stays.wait_for("1 person before you")
    closes.close_tab()

    text, pixels, *_ = stays.last()
    run = events.read(text)
    model = app.load(folder)
    for lane, method in zip(run.lanes, ("ARPipeline", "SJDPipeline"), strict=True):
        assert lane.reason == events.DONE
        assert lane.tokens.tolist() == tokens_alone(model, PROMPT, 3, method, guidance_scale=1.0)
    assert len(pixels.splitlines()) == 2

    stops.ask("finish", [None, ""])
    run = events.read(stops.last()[0])
    assert [lane.reason for lane in run.lanes] == [events.STOPPED] * 2
    assert all(0 < lane.drawn < SIDE**2 for lane in run.lanes), "what was drawn before Stop is lost"
