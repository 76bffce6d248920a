"""What a person takes along: files and code from traces. Knows nothing of models or pages."""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from pipelines.primitives.trace import Header, Trace
from visualize import grid


if TYPE_CHECKING:
    from matplotlib.figure import Figure


DOTS_PER_INCH = 160


def about(header: Header) -> dict[str, Any]:
    """How a run was made, for a file's metadata: what it takes to make it again, and nothing that is unset."""
    return {name: value for name, value in asdict(header).items() if value is not None}


def picture_png(picture: Image.Image, trace: Trace) -> bytes:
    """The decoded picture of a run as a PNG file with the run's prompt, seed, settings and weights inside."""
    return grid.png(picture, about(trace.header))


def figure_png(figure: "Figure") -> bytes:
    """A figure of this package as a PNG file."""
    return figure_file(figure, "png")


def figure_file(figure: "Figure", kind: str) -> bytes:
    """A figure of this package as a file, 160 dots an inch. kind: "jpg" where it holds many pictures."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=DOTS_PER_INCH)
    return buffer.getvalue()


def tokens_sha256(tokens: np.ndarray) -> str:
    """Digest of token ids in their order, as int32. Hexadecimal."""
    return hashlib.sha256(tokens.astype("<i4").tobytes()).hexdigest()


def code(trace: Trace, folder: str, defaults: Mapping[str, object]) -> str:
    """Python that draws the tokens of a run again and checks that they are the same.

    folder: where its model lies; defaults: sampling and method settings where a call says nothing. Raises ValueError
    for a run whose dice had been rolled before.
    """
    header, count = trace.header, len(trace.tokens)
    if header.seed is None:
        raise ValueError(
            "`trace` must have a seed, got one whose generator had been drawn from; draw with a fresh one."
        )
    call = [repr(header.prompt)]
    call += [f"negative_prompt={header.negative_prompt!r}"] if header.negative_prompt is not None else []
    call += [f"{name}={value!r}" for name, value in header.settings.items() if value != defaults[name]]
    made = f"torch {header.torch_version}, {header.dtype}, {header.threads} threads"
    return f"""\
import hashlib
import torch
from pipelines import {header.method}

# Made with {made}; another machine may round a near-tie the other way.
torch.set_num_threads({header.threads})
pipe = {header.method}.from_pretrained({folder!r}, dtype=torch.{header.dtype}).to({header.device!r})
assert pipe.weights_sha256 == "{header.weights_sha256}", "other weights"
generator = torch.Generator().manual_seed({header.seed})
output = pipe({", ".join(call)}, generator=generator)
output.images[0].save("picture.png")
tokens = output.traces[0].tokens[:{count}]
assert hashlib.sha256(tokens.tobytes()).hexdigest() == "{tokens_sha256(trace.tokens)}", "other tokens"
"""
