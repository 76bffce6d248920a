"""What a page can ask for: a race of lanes, or the tokens of one picture. Knows no models and no widgets."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing
from typing import Any, NamedTuple, Protocol

import numpy as np

from pipelines.primitives.trace import Trace
from visualize import events
from visualize.broadcast import Broadcast, Contest
from visualize.events import lane_names
from visualize.notes import in_line, not_known, note
from visualize.numbers import told


WAITING_SECONDS = 0.25  # between two words to one who waits, who can then give up
PROGRESS_SECONDS = 0.5  # between two signs of life of `decode`, which are also where it can be cancelled
WAITING = "waiting"  # kind of a note that holds only until something happens


class Message(NamedTuple):
    """News for the page: event text, decoded pixels, a notice for the person, the run; None leaves what is there."""

    text: str | None = None
    pixels: str | None = None
    notice: str | None = None
    run: Broadcast | None = None


class Line(Protocol):
    """Who waits for the model."""

    def place(self) -> AbstractContextManager[Callable[[], int]]:
        """A place in it; what it gives tells how many are ahead."""
        ...


class Studio:
    """A run lives in the generator that shows it: who stops reading stops the drawing.

    worker: the one thread in which all model work is done. OpenMP keeps threads for every thread that calls it, and
    two such teams hinder each other: on 2 cores a token then takes 5.1 ms instead of 2.3, even one after the other.
    components: what all runs share, once it is loaded. begin: a contest over them, of what was asked for; it raises
    ValueError for what cannot be drawn.
    """

    def __init__(
        self,
        worker: ThreadPoolExecutor,
        components: "Future[dict[str, Any]]",
        line: Line,
        begin: Callable[[dict[str, Any], Any], Contest],
    ) -> None:
        self.worker, self.components, self.line, self.begin = worker, components, line, begin

    def work(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a task, done by the worker."""
        return self.worker.submit(task, *arguments).result()

    def draw(self, make: Callable[[], Any]) -> Iterator[Message]:
        """Draw a picture a lane, when it is this visitor's turn. make: what is asked for, or ValueError."""
        try:
            ask = make()
            with self.line.place() as ahead:
                while others := ahead():
                    yield Message(notice=note(in_line(others), WAITING))
                    time.sleep(WAITING_SECONDS)
                while not self.components.done():
                    yield Message(notice=note("The model is being loaded. This takes a few seconds.", WAITING))
                    wait([self.components], timeout=WAITING_SECONDS)
                contest = self.work(self.begin, self.components.result(), ask)
                with closing(Broadcast(contest)) as run:
                    yield Message(run.log.text, "", note(not_known(contest.unknown), "warn"), run)
                    for news in run.news(self.work):
                        yield Message(*news)
        except (ValueError, OSError) as error:
            yield Message(notice=note(str(error), "bad"))

    def repeat(self, make: Callable[[], Sequence[Any]]) -> Iterator[tuple[str | None, str | None]]:
        """Lanes drawn with several seeds, picture after picture in turns: numbers so far as JSON, and a notice.

        make: what is asked for, one picture each: all lanes of the first seed, then of the next; or ValueError.
        """
        try:
            asks = make()
            with self.line.place() as ahead:
                while others := ahead():
                    yield None, note(in_line(others), WAITING)
                    time.sleep(WAITING_SECONDS)
                lanes = sum(ask.seed == asks[0].seed for ask in asks)
                traces: list[Trace] = []
                yield told([], [], np.zeros((0, lanes)), np.zeros((0, lanes)), len(asks) // lanes), ""
                for count, ask in enumerate(asks, 1):
                    yield None, note(f"Drawing picture {count} of {len(asks)}.", WAITING)
                    contest = self.work(self.begin, self.components.result(), ask)
                    with closing(Broadcast(contest)) as run:
                        while self.work(run.advance, WAITING_SECONDS):
                            yield None, None  # where it can be stopped
                    traces += run.traces
                    whole = traces[: len(traces) // lanes * lanes]
                    counts = np.array([(trace.seconds, trace.nfe) for trace in whole]).reshape(-1, lanes, 2)
                    seeds = [ask.seed for ask in asks[: len(whole) : lanes]]
                    names = lane_names(traces[:lanes]) if whole else []
                    unknown = note(not_known(contest.unknown), "warn")
                    yield told(names, seeds, counts[..., 0], counts[..., 1].astype(int), len(asks) // lanes), unknown
        except (ValueError, OSError) as error:
            yield None, note(str(error), "bad")

    def finish(self, run: Broadcast | None, notice: str) -> Message:
        """After a run, whether it came to its end or was stopped: close its event text, decode what there is."""
        was_stopped = run is not None and run.end(events.STOPPED)
        news = (run.log.text, self.work(run.portraits)) if was_stopped else (None, None)
        return Message(*news, "" if WAITING in notice else None)

    def decode(self, ask: Any) -> Iterator[dict]:
        """Draw one picture: signs of life, then its tokens, its counts and what it was asked for."""
        with self.line.place() as ahead:
            while others := ahead():
                yield {"waiting_for": others}
                time.sleep(WAITING_SECONDS)
            contest = self.work(self.begin, self.components.result(), ask)
            with closing(Broadcast(contest)) as run:
                while self.work(run.advance, PROGRESS_SECONDS):
                    yield {"drawn": run.log.lanes[0].drawn}
        counts = {"tokens": run.log.lanes[0].tokens.tolist(), "seconds": run.traces[0].seconds}
        yield counts | {"nfe": run.traces[0].nfe} | run.about[0] | {"unknown_words": contest.unknown}
