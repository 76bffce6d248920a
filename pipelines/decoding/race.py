"""Several runs on one device, each shown at its own speed."""

from collections.abc import Iterator
from typing import Protocol

from pipelines.primitives.trace import Step


class Run(Iterator[Step], Protocol):
    """Steps that can be ended early; `decode` gives one."""

    def close(self) -> None: ...


def race(runs: dict[str, Run], turn: float = 0.0) -> Iterator[tuple[str, Step]]:
    """Interleave the steps of named runs: always advance the one with the least accumulated seconds of its own.

    turn: seconds by which a run may get ahead before another has its turn. Ties go to the run named first. Closing the
    race closes every run.
    """
    spent, name = dict.fromkeys(runs, 0.0), ""
    try:
        while spent:
            behind = min(spent, key=spent.__getitem__)
            if name not in spent or spent[name] >= spent[behind] + turn:
                name = behind
            step = next(runs[name], None)
            if step is None:
                del spent[name]
                continue
            spent[name] += step.seconds
            yield name, step
    finally:
        for run in runs.values():
            run.close()
