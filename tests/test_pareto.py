"""The figure of speed against its price, and which points stand side by side."""

from types import SimpleNamespace

import numpy as np
from PIL import Image

from benchmarks import pareto
from benchmarks.run import entrants
from visualize import pareto as figures


def point(length: float, share: float) -> dict:
    return {
        "accepted_length": length,
        "fidelity": {"share": share, "low": share - 0.1, "high": share + 0.1},
        "infidelity": 0.1 * length,
        "log_likelihood": -length,
        "frechet": length**2,
    }


def test_every_price_is_drawn_over_accepted_length():
    levels = {"fidelity": 0.9, "infidelity": 0.0, "log_likelihood": -1.0, "frechet": 0.3}
    figure = figures.pareto({"one": [point(3, 0.7), point(2, 0.8)], "two": [point(4, 0.5)]}, levels)
    assert len(figure.axes) == 4
    distances = figure.axes[3].lines
    assert distances[0].get_xydata().tolist() == [[2, 4], [3, 9]], "in the order of length"
    assert [set(axes.lines[-1].get_ydata()) for axes in figure.axes] == [{0.9}, {0.0}, {-1.0}, {0.3}]


def test_a_sheet_has_a_column_a_method_and_a_row_a_prompt():
    red, blue = (Image.fromarray(np.full((4, 4, 3), value, np.uint8)) for value in (10, 200))
    figure = figures.contact_sheet({"AR": [red, blue], "COOL-SD": [blue, red]}, ["a cat on sand", "a dog"])
    shown = [int(axes.images[0].get_array().flat[0]) for axes in figure.axes]
    assert shown == [10, 200, 200, 10] and figure.axes[0].get_title() == "AR"
    assert figure.axes[0].get_ylabel().replace("\n", " ") == "a cat on sand"


def test_points_are_settings_that_there_are():
    asked = [name for family in pareto.names().values() for name in family]
    assert len(asked) == len(set(asked)) <= 20 and len(entrants(asked)) == len(asked) + 1


def test_the_point_of_like_length_is_the_nearest():
    lengths = dict(zip(pareto.names()["COOL-SD δ"], (2.6, 2.8, 2.95, 3.2, 3.4)))
    points = {name: SimpleNamespace(accepted_length=length) for name, length in lengths.items()}
    assert pareto.matched(points, "COOL-SD δ", 2.9) == "cool-sd:delta=2"
