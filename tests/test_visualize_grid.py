"""Pictures of a token grid: what is drawn has its colour, what is not is transparent."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from visualize import grid
from visualize.style import hex_colours


PALETTE = np.array([[250, 0, 0], [0, 250, 0], [0, 0, 250]], dtype=np.uint8)
PARTIAL = np.array([[2, 1], [0, -1]])


def opened(url: str, kind: str) -> Image.Image:
    head, _, content = url.partition(",")
    assert head == f"data:image/{kind};base64", head
    return Image.open(io.BytesIO(base64.b64decode(content)))


def test_squares_have_the_mean_colour_of_their_code():
    picture = grid.squares(PARTIAL, PALETTE, side=8)
    assert (picture.mode, picture.size) == ("RGBA", (16, 16))
    corners = [picture.getpixel(at) for at in ((0, 0), (15, 7), (7, 15))]
    assert corners == [(0, 0, 250, 255), (0, 250, 0, 255), (250, 0, 0, 255)]


def test_a_square_without_a_token_is_transparent():
    assert grid.squares(PARTIAL, PALETTE, side=8).getpixel((8, 8))[3] == 0


def test_a_grid_drawn_twice_gives_the_same_pixels():
    assert grid.squares(PARTIAL, PALETTE, 4).tobytes() == grid.squares(PARTIAL, PALETTE, 4).tobytes()


@pytest.mark.parametrize(
    ("tokens", "whole"),
    [
        ([[1, 2, -1], [-1, -1, -1]], [[1, 2, 2], [1, 2, 2]]),
        ([[1, 2, 3], [-1, -1, -1]], [[1, 2, 3], [1, 2, 3]]),
        ([[1, 2, 3], [4, -1, -1]], [[1, 2, 3], [4, 2, 3]]),
        ([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]),
    ],
)
def test_a_hole_repeats_the_token_above(tokens: list, whole: list):
    assert grid.extend(np.array(tokens)).tolist() == whole


def test_reveal_shows_decoded_pixels_of_drawn_squares_only():
    decoded = Image.new("RGB", (16, 16), (9, 8, 7))
    shown = np.array(grid.reveal(decoded, PARTIAL))
    assert (shown[:8] == (9, 8, 7, 255)).all() and (shown[8:, :8] == (9, 8, 7, 255)).all()
    assert (shown[8:, 8:] == 0).all()


def test_reveal_refuses_a_picture_that_the_squares_do_not_divide():
    with pytest.raises(AssertionError, match="squares"):
        grid.reveal(Image.new("RGB", (15, 15)), PARTIAL)


def test_a_png_carries_how_it_was_made_and_loses_nothing():
    picture = grid.squares(PARTIAL, PALETTE, side=3)
    saved = opened(grid.png_url(picture, {"prompt": "a fox, “red”", "seed": 7, "settings": {"top_k": 5}}), "png")
    assert saved.tobytes() == picture.tobytes()
    assert saved.text == {"prompt": "a fox, “red”", "seed": "7", "settings": '{"top_k": 5}'}


def test_a_jpeg_is_near_the_picture():
    picture = Image.new("RGB", (16, 16), (40, 90, 200))
    saved = np.array(opened(grid.jpeg_url(picture), "jpeg")).astype(int)
    assert abs(saved - (40, 90, 200)).max() <= 3


def test_the_palette_is_six_letters_a_code():
    assert hex_colours(PALETTE) == "fa000000fa000000fa"


def test_a_sheet_holds_every_code_where_the_page_looks_for_it():
    colours = np.arange(40, dtype=np.uint8) * 6
    thumbnails = np.broadcast_to(colours[:, None, None, None], (40, 16, 16, 3))
    side, _, url = grid.sheet_url(thumbnails).partition(",")
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))).convert("L")).astype(int)
    assert side == "16" and picture.shape == (32, 32 * 16)
    for code in range(40):
        row, col = divmod(code, 32)
        assert abs(picture[row * 16 + 8, col * 16 + 8] - colours[code]) <= 6, f"code {code}"
