"""What a person takes along: files and code from traces. Knows nothing of models or pages."""

import io
from dataclasses import asdict
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from pipelines.primitives.trace import Header, Trace
from visualize import grid


DOTS_PER_INCH = 160


def about(header: Header) -> dict[str, Any]:
    """How a run was made, for a file's metadata: what it takes to make it again, and nothing that is unset."""
    return {name: value for name, value in asdict(header).items() if value is not None}


def picture_png(picture: Image.Image, trace: Trace) -> bytes:
    """The decoded picture of a run as a PNG file with the run's prompt, seed, settings and weights inside."""
    return grid.png(picture, about(trace.header))


def figure_png(figure: Figure) -> bytes:
    """A figure of this package as a PNG file, 160 dots an inch."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_figure(buffer, format="png", dpi=DOTS_PER_INCH)
    return buffer.getvalue()
