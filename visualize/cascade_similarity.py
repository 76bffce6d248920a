"""The figure of `benchmarks.similarity`: how alike the target's states are, and where guesses may borrow."""

import numpy as np
from matplotlib.figure import Figure

from visualize.cascade import ALIKE, CONVERGENT


def figure(found: dict) -> Figure:
    """Histograms of cosines, centred beside raw; below, how many guesses may borrow where the target is how unsure.

    found: what `benchmarks.similarity` keeps.
    """
    drawing = Figure(figsize=(8, 5.4), layout="constrained")
    axes = drawing.subplots(2, 2)
    for at, name in enumerate(("centred", "raw")):
        own, (top, low) = found[name], axes[:, at]
        for kind, colour, tau in (("level", ALIKE, "tau_level"), ("parent", CONVERGENT, "tau_parent")):
            words = "two guesses of a level" if kind == "level" else "a guess and its parent"
            share = np.array(own[kind]) / sum(own[kind])
            top.stairs(share, found["edges"], color=colour, label=words, linestyle="-" if kind == "level" else "--")
            top.axvline(own[tau], color=colour, linestyle=":")
        top.set(xlabel=f"cosine of {name} states; dots: thresholds", ylabel="share of pairs", xlim=(-1, 1))
        places = np.arange(4)
        bars = ((-0.2, "interchangeable", ALIKE, ""), (0.2, "convergent", CONVERGENT, "//"))
        for shift, kind, colour, hatch in bars:
            shares = [region[kind] for region in own["regions"]]
            low.bar(places + shift, shares, 0.4, color=colour, hatch=hatch, edgecolor="white", label=kind)
        names = ["{:.1f} to {:.1f}".format(*region["entropy"]) for region in own["regions"]]
        low.set(
            xlabel="entropy of the target's law, nats",
            ylabel="guesses that may borrow",
            ylim=(0, 1),
        )
        low.set_xticks(places, names)
    axes[0, 0].legend(frameon=False, fontsize=8)
    axes[1, 0].legend(frameon=False, fontsize=8)
    return drawing
