"""Several runs on one device, each shown at its own speed."""

from collections.abc import Generator, Iterator

from pipelines.primitives.trace import Step


def race(streams: dict[str, Generator[Step, None, None]]) -> Iterator[tuple[str, Step]]:
    """Interleave named streams of steps: always advance the run with the least accumulated seconds of its own.

    Ties go to the stream named first. Closing the race closes every stream.
    """
    spent = dict.fromkeys(streams, 0.0)
    try:
        while spent:
            name = min(spent, key=spent.__getitem__)
            step = next(streams[name], None)
            if step is None:
                del spent[name]
                continue
            spent[name] += step.seconds
            yield name, step
    finally:
        for stream in streams.values():
            stream.close()
