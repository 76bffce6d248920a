"""The token grid as a picture: flat squares before any decoding, decoded pixels where squares have been drawn."""

import base64
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from visualize.style import PENDING


SHEET_COLUMNS = 32  # codes a row, as assets/hands.js reads them


def squares(tokens: np.ndarray, palette: np.ndarray, side: int) -> Image.Image:
    """Each token as a flat square in its code's mean colour; transparent where no token is yet.

    tokens: [h, w] integers, -1 where none is yet; palette: [V, 3] uint8; side: pixels along a square. RGBA.
    """
    colours = np.empty((*tokens.shape, 4), dtype=np.uint8)
    colours[..., :3] = palette[tokens]
    colours[..., 3] = 255
    colours[tokens < 0] = PENDING
    return Image.fromarray(colours.repeat(side, axis=0).repeat(side, axis=1))


def extend(tokens: np.ndarray) -> np.ndarray:
    """The grid without holes, for a decoder that looks beyond each square: a hole repeats the token above it.

    tokens: [h, w], the first drawn row by row, -1 after them, one at least drawn.
    """
    row, col = divmod(int((tokens >= 0).sum()), tokens.shape[1])
    assert row or col, "no token to repeat"
    whole = tokens.copy()
    if row < len(tokens):
        whole[row, col:] = tokens[row - 1, col:] if row else tokens[row, col - 1]
        whole[row + 1 :] = whole[row]
    return whole


def reveal(picture: Image.Image, tokens: np.ndarray) -> Image.Image:
    """A decoded picture, transparent where no token is yet: there the decoder saw a stand-in. RGBA.

    picture: h x side by w x side pixels; tokens: [h, w], -1 where none is yet.
    """
    pixels = np.array(picture.convert("RGBA"))
    side, rest = divmod(pixels.shape[0], tokens.shape[0])
    assert rest == 0 and pixels.shape[1] == side * tokens.shape[1], f"{pixels.shape} over {tokens.shape} squares"
    pixels[(tokens < 0).repeat(side, axis=0).repeat(side, axis=1)] = PENDING
    return Image.fromarray(pixels)


def png(picture: Image.Image, about: Mapping[str, Any]) -> bytes:
    """The picture, without loss, as a file; each entry of `about` becomes a text of its metadata."""
    texts = PngInfo()
    for name, value in about.items():
        texts.add_itxt(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return _encoded(picture, format="PNG", pnginfo=texts)


def png_url(picture: Image.Image, about: Mapping[str, Any]) -> str:
    """As `png`, a data URL."""
    return _url("png", png(picture, about))


def jpeg_url(picture: Image.Image) -> str:
    """The picture as a short data URL, for one that is seen for half a second."""
    return _url("jpeg", _encoded(picture, format="JPEG", quality=85))


def sheet_url(thumbnails: np.ndarray) -> str:
    """All codes as one picture, `SHEET_COLUMNS` a row, as the page takes it: pixels along a square, data URL.

    thumbnails: [V, side, side, 3] uint8.
    """
    side, rest = thumbnails.shape[1], -len(thumbnails) % SHEET_COLUMNS
    tiles = np.concatenate([thumbnails, np.zeros((rest, side, side, 3), np.uint8)])
    rows = tiles.reshape(-1, SHEET_COLUMNS, side, side, 3).swapaxes(1, 2)
    return f"{side},{jpeg_url(Image.fromarray(rows.reshape(-1, SHEET_COLUMNS * side, 3)))}"


def _encoded(picture: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, **options)
    return buffer.getvalue()


def _url(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
