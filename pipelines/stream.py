"""One picture under way: an iterator of steps that keeps the trace of what it has given."""

from collections.abc import Iterator

from pipelines.primitives.trace import Step, Trace


class Stream(Iterator[Step]):
    """Rounds of one run, each computed when it is asked for.

    trace: header and layout from the start, a step more after each round. unknown: words of the prompt that the model
    does not know -> the nearest it knows. Closing a stream, or dropping it, ends the run and keeps what is drawn.
    """

    def __init__(self, trace: Trace, unknown: dict[str, list[str]], rounds: Iterator[Step]) -> None:
        self.trace = trace
        self.unknown = unknown
        self._rounds = rounds

    def __next__(self) -> Step:
        step = next(self._rounds)
        self.trace.steps.append(step)
        return step

    def close(self) -> None:
        self._rounds.close()
