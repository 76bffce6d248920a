"""Runs recorded beforehand, which the page shows before any model is loaded."""

import json
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from pipelines.primitives.trace import Trace, load
from visualize import events, export, grid


@dataclass(frozen=True)
class Recordings:
    """Runs of one model by lane, such as "ar": their traces and pictures, and where and when they were made.

    palette: the mean colours of the model's codes, as the page takes them.
    """

    traces: dict[str, Trace]
    pictures: dict[str, Image.Image]
    palette: str
    device: str
    date: str

    def race(self) -> str:
        """The event text of the lanes side by side; empty without lanes."""
        named = {events.short_name(trace.header.method): trace for trace in self.traces.values()}
        return events.replay(named, device=self.device, date=self.date) if named else ""

    def pixels(self) -> str:
        """Their whole pictures, as the page takes them."""
        urls = [grid.png_url(self.pictures[lane], export.about(trace.header)) for lane, trace in self.traces.items()]
        squares = [trace.layout.positions.size for trace in self.traces.values()]
        return "\n".join(f"{index},{count},{url}" for index, (count, url) in enumerate(zip(squares, urls)))


NONE = Recordings({}, {}, "", "", "")


def open_recordings(folder: Path, model: str) -> Recordings:
    """What a folder holds of this model; `NONE` where there is no folder or it is of another model.

    Raises ValueError, naming the file, for one that is damaged.
    """
    index = folder / "index.json"
    if not index.exists():
        return NONE
    try:
        found = json.loads(index.read_text(encoding="utf-8"))
        lanes = found["lanes"]
        traces = {lane: load(folder / f"{lane}.npz") for lane in lanes}
        if any(trace.header.model != model for trace in traces.values()):
            return NONE
        pictures = {lane: Image.open(folder / f"{lane}.png").convert("RGB") for lane in lanes}
        return Recordings(traces, pictures, found["palette"], found["machine"], found["date"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"`{index}` or what it names is damaged; `make traces` records anew: {error}.") from error
