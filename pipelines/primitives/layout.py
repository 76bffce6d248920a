"""Where a token of the sequence sits in the picture. Arrays in, arrays out; knows nothing of models."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Layout:
    """A picture of rows x cols squares, written row by row, with forced tokens (line ends, image end) between them.

    forced: position in the sequence -> the only token allowed there. Forced positions fill no square.
    """

    rows: int
    cols: int
    forced: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rows < 1 or self.cols < 1:
            raise ValueError(f"`rows` and `cols` must be at least 1, got {self.rows} and {self.cols}.")
        if not all(0 <= position < self.length for position in self.forced):
            raise ValueError(f"`forced` must name positions from 0 to {self.length - 1}, got {sorted(self.forced)}.")

    @property
    def length(self) -> int:
        """Tokens of one picture, forced ones included."""
        return self.rows * self.cols + len(self.forced)

    @cached_property
    def positions(self) -> np.ndarray:
        """[rows, cols] position in the sequence of every square."""
        free = [position for position in range(self.length) if position not in self.forced]
        return np.array(free, dtype=np.int64).reshape(self.rows, self.cols)

    @cached_property
    def _squares(self) -> dict[int, tuple[int, int]]:
        return {int(position): divmod(square, self.cols) for square, position in enumerate(self.positions.flat)}

    def row_col(self, position: int) -> tuple[int, int] | None:
        """The square of a position; None for a forced one."""
        assert 0 <= position < self.length, f"position {position} lies outside a sequence of {self.length}"
        return self._squares.get(position)

    def left(self, position: int) -> int | None:
        """Position of the square to the left; None in the first column and for a forced position."""
        square = self.row_col(position)
        if square is None or square[1] == 0:
            return None
        return int(self.positions[square[0], square[1] - 1])

    def grid(self, tokens: np.ndarray) -> np.ndarray:
        """[rows, cols] tokens of the squares from the first [n <= length] of the sequence; -1 where not yet."""
        full = np.full(self.length, -1, dtype=np.int64)
        full[: len(tokens)] = tokens
        return full[self.positions]

    def force(self, probs, position: int):
        """`probs` [..., V], tensor or array; at a forced position certainty of its token instead."""
        if position not in self.forced:
            return probs
        certain = probs * 0
        certain[..., self.forced[position]] = 1
        return certain
