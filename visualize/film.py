"""A race as a moving picture: every lane's squares at the time of its own clock."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from pipelines.primitives.trace import Trace
from visualize.events import lane_names
from visualize.grid import reveal


SECONDS, FRAMES = 6.0, 48  # of the film; its last frame stays
LAST_FRAME_MS = 2500
SIDE, GAP, FOOT = 256, 16, 52  # pixels: a picture's longer side, between and around pictures, words below
PAPER, INK, BARE = "#ffffff", "#111827", "#e5e7eb"


def drawn_at(trace: Trace, seconds: float) -> tuple[int, int]:
    """Tokens and passes of a run when its own clock shows so many seconds."""
    over = np.searchsorted(np.cumsum([step.seconds for step in trace.steps]), seconds, side="right")
    return sum(len(step.committed) for step in trace.steps[:over]), int(over)


def frame(traces: Sequence[Trace], pictures: Sequence[Image.Image], seconds: float) -> Image.Image:
    """All lanes at one time, side by side, with their counts. pictures: whole ones, decoded."""
    scale = SIDE / max(pictures[0].size)
    width, height = (round(scale * side) for side in pictures[0].size)
    canvas = Image.new("RGB", (len(traces) * (width + GAP) + GAP, height + 2 * GAP + FOOT), PAPER)
    pen, font = ImageDraw.Draw(canvas), ImageFont.load_default(15)
    for index, (name, trace, picture) in enumerate(zip(lane_names(traces), traces, pictures)):
        tokens, passes = drawn_at(trace, seconds)
        left, clock = GAP + index * (width + GAP), min(seconds, trace.seconds)
        pen.rectangle((left, GAP, left + width - 1, GAP + height - 1), BARE)
        shown = reveal(picture, trace.layout.grid(trace.tokens[:tokens])).resize((width, height), Image.NEAREST)
        canvas.paste(shown, (left, GAP), shown)
        pen.text((left, height + GAP + 6), name, INK, font)
        pen.text((left, height + GAP + 26), f"{tokens} tokens, {passes} passes, {clock:.2f} s", INK, font)
    return canvas


def film(traces: Sequence[Trace], pictures: Sequence[Image.Image]) -> bytes:
    """The race as a GIF file that lasts six seconds, however long the slowest lane took, and stays at its end."""
    end = max(trace.seconds for trace in traces)
    frames = [frame(traces, pictures, end * share) for share in np.linspace(0, 1, FRAMES)]
    colours = frames[-1].quantize(128)  # the last frame holds all that the others show
    frames = [one.quantize(palette=colours, dither=Image.Dither.NONE) for one in frames]
    pauses = [round(1000 * SECONDS / FRAMES)] * (FRAMES - 1) + [LAST_FRAME_MS]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=pauses, loop=0, disposal=1)
    return buffer.getvalue()
