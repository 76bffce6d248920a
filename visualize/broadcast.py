"""A race as its watchers hear of it: when to say what. Knows no models; it asks the contest for steps and pixels."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from PIL import Image

from pipelines.primitives.trace import Step, Trace
from visualize import events, export, grid


MESSAGE_SECONDS = 0.1  # at most ten messages a second to the page; it spreads the squares between them
KEYFRAME_SECONDS = 0.5


class Contest(Protocol):
    """Lanes under way."""

    traces: list[Trace]

    def __next__(self) -> tuple[int, Step]:
        """A round of a lane; StopIteration once all lanes have ended."""
        ...

    def picture(self, tokens: np.ndarray) -> Image.Image:
        """[rows, cols] tokens as pixels."""
        ...

    def close(self) -> None: ...


class News(NamedTuple):
    """What a watcher hears; None: nothing new. pixels: a line `lane,squares,url` for each picture."""

    text: str | None = None
    pixels: str | None = None


class Broadcast:
    """One race and its event text. A lane's clock stands still between its steps."""

    def __init__(self, contest: Contest) -> None:
        self.contest, self.traces = contest, contest.traces
        headers = [trace.header for trace in self.traces]
        self.about = [export.about(header) for header in headers]
        names = events.lane_names(self.traces)
        self.log = events.EventLog(self.traces[0].layout, names, events.told(headers))
        self._sent = [0 for _ in names]  # squares of each lane in its last still

    def news(self, work: Callable[..., Any]) -> Iterator[News]:
        """From the first square to the last pictures. work: calls a function where model work is done."""
        keyframe = time.monotonic()
        try:
            while work(self.advance, MESSAGE_SECONDS):
                is_due = time.monotonic() >= keyframe + KEYFRAME_SECONDS
                keyframe = time.monotonic() if is_due else keyframe
                yield News(self.log.text, work(self.stills) if is_due else None)
            yield News(self.log.text, work(self.portraits))
        except (RuntimeError, MemoryError) as error:
            self.end(f"The run broke off: {error} What is drawn stays; Start tries again.")
            yield News(self.log.text)

    def advance(self, seconds: float) -> bool:
        """Draw for so long, one round at least; whether there may be more to draw."""
        until = time.monotonic() + seconds
        while (turn := next(self.contest, None)) is not None:
            self.log.add(*turn)
            if time.monotonic() >= until:
                return True
        return False

    def end(self, reason: str) -> bool:
        """End the lanes that are under way; whether there were any."""
        unfinished = [index for index, lane in enumerate(self.log.lanes) if not lane.reason]
        for index in unfinished:
            self.log.end(index, reason)
        return bool(unfinished)

    def stills(self) -> str:
        """What has changed since the last ones, small."""
        changed = [index for index, lane in enumerate(self.log.lanes) if lane.drawn != self._sent[index]]
        self._sent = [lane.drawn for lane in self.log.lanes]
        return "\n".join(self._line(index, grid.jpeg_url(self._picture(index))) for index in changed)

    def portraits(self) -> str:
        """All pictures, without loss, transparent where nothing is drawn, with their origin inside."""
        drawn = [(index, picture) for index, picture in enumerate(self.pictures()) if picture is not None]
        return "\n".join(self._line(index, grid.png_url(picture, self.about[index])) for index, picture in drawn)

    def pictures(self) -> list[Image.Image | None]:
        """Of each lane what is drawn, the rest transparent; None before the first square."""
        lanes = enumerate(self.log.lanes)
        return [grid.reveal(self._picture(index), lane.tokens) if lane.drawn else None for index, lane in lanes]

    def close(self) -> None:
        self.contest.close()

    def _line(self, index: int, url: str) -> str:
        return f"{index},{self.log.lanes[index].drawn},{url}"

    def _picture(self, index: int) -> Image.Image:
        """A lane's squares, decoded; below the drawn ones they go on, so that the edge does not bleed."""
        return self.contest.picture(grid.extend(self.log.lanes[index].tokens))
