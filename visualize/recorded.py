"""Runs recorded beforehand, which the page shows before any model is loaded."""

import json
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from pipelines.primitives.trace import Trace, load
from visualize import events, export, grid


@dataclass(frozen=True)
class Recordings:
    """Two runs of one model, or none: their traces and pictures, and where and when they were made.

    palette: the mean colours of the model's codes, as the page takes them.
    """

    traces: list[Trace]
    images: list[Image.Image]
    palette: str
    device: str
    date: str

    def race(self) -> str:
        """The event text of the runs side by side; empty without runs."""
        return events.replay(self.traces, device=self.device, date=self.date) if self.traces else ""

    def pixels(self) -> str:
        """Their whole pictures, as the page takes them."""
        urls = [grid.png_url(image, export.about(trace.header)) for image, trace in zip(self.images, self.traces)]
        squares = [trace.layout.positions.size for trace in self.traces]
        return "\n".join(f"{index},{count},{url}" for index, (count, url) in enumerate(zip(squares, urls)))

    def pictures(self) -> list[Image.Image]:
        return self.images


NONE = Recordings([], [], "", "", "")


def open_recordings(folder: Path, model: str) -> Recordings:
    """The first two runs of a folder; `NONE` where there is no folder or it is of another model.

    Raises ValueError, naming the file, for one that is damaged.
    """
    index = folder / "index.json"
    if not index.exists():
        return NONE
    try:
        found = json.loads(index.read_text(encoding="utf-8"))
        lanes = found["lanes"][:2]
        traces = [load(folder / f"{lane}.npz") for lane in lanes]
        if any(trace.header.model != model for trace in traces):
            return NONE
        images = [Image.open(folder / f"{lane}.png").convert("RGB") for lane in lanes]
        return Recordings(traces, images, found["palette"], found["machine"], found["date"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"`{index}` or what it names is damaged; `make traces` records anew: {error}.") from error
