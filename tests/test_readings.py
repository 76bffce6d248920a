"""What the map's readings are drawn from reaches the page: the entropy of every square's law."""

import numpy as np
import pytest

import app
from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import load
from tests.test_visualize_events import Guess, guessed
from visualize import events


def entropies(text: str) -> list[float]:
    """Of the squares in their order."""
    notes = [
        line.split(",") for line in text.splitlines() if line.startswith("M,") and line.split(",")[3] == "entropy"
    ]
    assert all(int(cells[4]) == len(cells) - 5 for cells in notes)
    return [float(value) for cells in notes for value in cells[5:]]


def test_every_square_has_the_entropy_of_the_law_it_was_drawn_by():
    trace = load(app.ASSETS / "traces" / "sjd.npz")
    expected = np.concatenate([step.entropy[[0, *(step.path + 1)]] for step in trace.steps])
    assert entropies(events.replay([trace])) == pytest.approx(expected, rel=5e-3, abs=1e-12)


def test_a_forced_position_is_no_square():
    layout = Layout(1, 2, {1: 9})
    log = events.EventLog(layout, ["one"], {})
    step = guessed(0, 0, [Guess(4, -1), Guess(9, 0)], [4, 9, 5])
    step.entropy[:] = [0.5, 1.0, 1.5]
    log.add(0, step)
    assert entropies(log.text) == [0.5, 1.5]
