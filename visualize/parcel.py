"""A whole run in one file to take along: traces, pictures, figures, and code that draws the same tokens."""

import base64
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from PIL import Image

from pipelines.primitives.trace import Trace
from visualize import export, past
from visualize.events import lane_names


def parcel(traces: Sequence[Trace], pictures: Sequence[Image.Image], codes: Sequence[str]) -> bytes:
    """A zip archive. pictures, codes: one per trace, each of which has a step at least."""
    # Here, because matplotlib takes longer to load than the page may.
    from visualize import cascade
    from visualize.compare import compare
    from visualize.film import film
    from visualize.growth import growth
    from visualize.heatmap import acceptance_map
    from visualize.timeline import timeline

    files: dict[str, bytes] = {}
    for name, trace, picture, code in zip(lane_names(traces), traces, pictures, codes, strict=True):
        files |= {f"{name}.npz": trace.to_bytes(), f"{name}.png": export.picture_png(picture, trace)}
        files[f"{name}.py"] = code.encode()
        if any(len(step.tokens) for step in trace.steps):
            files[f"{name} acceptance.png"] = export.figure_png(acceptance_map(trace))
        if past.is_told(trace):
            files[f"{name} growth.png"] = export.figure_png(growth(trace))
        files |= {f"{name} {what}.png": export.figure_png(figure) for what, figure in cascade.figures(trace).items()}
    files["pictures.png"] = export.figure_png(compare(traces, pictures))
    files["race.gif"] = film(traces, pictures)
    files["timeline.png"] = export.figure_png(timeline(traces))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return archive.getvalue()


class Run(Protocol):
    """What can be taken along."""

    traces: list[Trace]

    def pictures(self) -> list[Image.Image | None]:
        """One a trace; None where it has no square yet."""
        ...


@dataclass(frozen=True)
class Shelf:
    """What a visitor can take along: the run that is shown, or the one that was recorded.

    folder: where the model lies; defaults: of sampling and settings, by method.
    """

    recorded: Run
    folder: str
    defaults: Mapping[str, Mapping[str, object]]

    def listing(self, run: Run | None = None) -> str | None:
        """Code that draws the last lane again; None where nothing is shown."""
        traces = (run or self.recorded).traces
        return self._code(traces[-1]) if traces else None

    def pack(self, run: Run | None, work: Callable[..., Any]) -> str:
        """All lanes that have a square, as a data URL; empty where none has. work: see `Broadcast.news`."""
        shown = run or self.recorded
        drawn = {index: picture for index, picture in enumerate(work(shown.pictures)) if picture is not None}
        if not drawn:
            return ""
        traces = [shown.traces[index] for index in drawn]
        content = parcel(traces, list(drawn.values()), [self._code(trace) for trace in traces])
        return f"data:application/zip;base64,{base64.b64encode(content).decode()}"

    def _code(self, trace: Trace) -> str:
        return export.code(trace, self.folder, self.defaults[trace.header.method])
