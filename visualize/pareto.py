"""Speed never without its price: what each method gives up for the tokens that it gets out of a pass."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from visualize.style import REFERENCE_LINE


# Families of points in their order: colour, dashes, marker.
STYLES = (
    ("#0072B2", "-", "o"),
    ("#E69F00", "--", "s"),
    ("#CC79A7", ":", "^"),
    ("#009E73", "-.", "D"),
    ("#56B4E9", "-", "v"),
)
PRICES = (
    ("fidelity", "object and place as asked"),
    ("infidelity", "infidelity per token"),
    ("log_likelihood", "log-likelihood, nats a token"),
    ("frechet", "Fréchet distance from AR"),
)


def pareto(families: Mapping[str, Sequence[Mapping[str, Any]]], levels: Mapping[str, float]) -> Figure:
    """Four prices against accepted length, a line per family of points.

    families: name -> points, each a mapping with accepted_length and the names of `PRICES`; fidelity is a mapping of
    share, low and high. levels: what AR has of each price; of the Fréchet distance, AR with other seeds.
    """
    figure = Figure(figsize=(8.4, 6.4), layout="constrained")
    for axes, (price, words) in zip(figure.subplots(2, 2).flat, PRICES):
        for (name, points), (colour, dashes, marker) in zip(families.items(), STYLES):
            points = sorted(points, key=lambda point: point["accepted_length"])
            at = [point["accepted_length"] for point in points]
            drawn = {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 5, "label": name}
            if price == "fidelity":
                share, low, high = ([point[price][part] for point in points] for part in ("share", "low", "high"))
                around = np.abs([np.subtract(share, low), np.subtract(high, share)])
                axes.errorbar(at, share, around, capsize=2, elinewidth=0.8, **drawn)
            else:
                axes.plot(at, [point[price] for point in points], **drawn)
        axes.axhline(levels[price], **{**REFERENCE_LINE, "zorder": 0})
        axes.set(xlabel="accepted length, tokens a pass", ylabel=words)
    figure.suptitle("grey: AR; of the Fréchet distance, AR with other seeds", fontsize=9, color="#555555")
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=9)
    return figure


def contact_sheet(columns: Mapping[str, Sequence[Image.Image]], prompts: Sequence[str]) -> Figure:
    """Pictures of the same prompts and seeds side by side: a column per method, a row per prompt, heads above."""
    figure = Figure(figsize=(1.1 * len(columns) + 1.6, 1.1 * len(prompts) + 0.6), layout="constrained")
    grid = figure.subplots(len(prompts), len(columns), squeeze=False)
    for column, (name, pictures) in zip(grid.T, columns.items()):
        column[0].set_title(name, fontsize=8)
        for axes, picture in zip(column, pictures):
            axes.imshow(np.asarray(picture))
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
    for axes, prompt in zip(grid[:, 0], prompts):
        axes.set_ylabel(prompt.replace(" on ", "\non ").replace(" by ", "\nby ").replace(" in ", "\nin "), fontsize=7)
        axes.yaxis.label.set(rotation=0, ha="right", va="center")
    return figure
