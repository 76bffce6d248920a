"""Colours that every view shares."""

import numpy as np


# A square that no token has reached, in a saved picture: fully transparent.
PENDING = (0, 0, 0, 0)


def hex_colours(palette: np.ndarray) -> str:
    """All colours as one text, six letters each and nothing between them: what a page gets once.

    palette: [V, 3] uint8, the mean colour of each code.
    """
    assert palette.dtype == np.uint8 and palette.shape[1:] == (3,), f"{palette.dtype} {palette.shape}"
    return palette.tobytes().hex()
