"""Does a token's probability rise before it is kept? A square's tokens pass by pass, and how often they grew.

SJD-VP, arXiv:2603.27115. Drawn from the notes of Jacobi methods: past_tokens, past_guesses, past_probs of each step.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipelines.primitives.trace import Step, Trace
from visualize.past import STEPS, checked, is_told, past, shares
from visualize.style import FATE_COLOURS


FLOOR = 1e-6  # probabilities below are drawn here
TOLD = 6  # tokens of a square that are drawn


def longest_watched(trace: Trace) -> tuple[Step, int]:
    """The step and the offset in it of the square that was placed after the most passes."""
    steps = [step for step in trace.steps if "past_probs" in step.notes]
    places = [(step, offset) for step in steps for offset in range(len(step.committed))]
    return max(places, key=lambda place: len(past(*place)))


def growth(trace: Trace, steps: int | None = None) -> Figure:
    """The square with the longest past, and how often guesses of the run grew, beside chance.

    steps: so many increases in a row are drawn thick; the run's own N, or 3, if not given. Raises ValueError for a run
    that tells of no past.
    """
    if not is_told(trace):
        raise ValueError(f"`trace` must be of a Jacobi method, got {trace.header.method}, which keeps no past.")
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    steps = steps or trace.header.settings.get("growth_steps", 3)
    draw_square(left, trace, *longest_watched(trace), steps)
    guesses = checked(trace)
    for index, (fate, words) in enumerate({"k": "kept", "r": "refused"}.items()):
        found = [shares([one for one in guesses if one.is_kept == (fate == "k")], count) for count in STEPS]
        at = np.arange(len(STEPS)) + 0.4 * index - 0.2
        look = {"color": FATE_COLOURS[fate], "hatch": "//" * index, "edgecolor": "white"}
        right.bar(at, [share for share, _, _ in found], 0.36, label=words, **look)
        levels = [level for _, level, _ in found]
        right.hlines(levels, at - 0.18, at + 0.18, color="black", label=None if index else "chance")
    right.set(ylim=(0, 1), ylabel="share of checked guesses", xlabel="increases in a row, up to the check")
    right.set_xticks(range(len(STEPS)), STEPS)
    right.legend(frameon=False)
    return figure


def draw_square(axes: Axes, trace: Trace, step: Step, offset: int, steps: int) -> None:
    """Probability over passes of a square's token and of those it competed with; increases in a row are thick."""
    probs = np.log10(np.maximum(past(step, offset), FLOOR))
    tokens, guesses = step.notes["past_tokens"][offset], step.notes["past_guesses"][offset, -len(probs) :]
    passes = step.index + 2 - len(probs) + np.arange(len(probs))
    for column, (token, line) in enumerate(zip(tokens[:TOLD], probs.T)):
        if token < 0:
            continue
        is_placed = column == 0
        look = {"color": FATE_COLOURS["k"] if is_placed else f"C{column + 3}", "alpha": 1 if is_placed else 0.7}
        axes.plot(passes, line, lw=1.2, label=f"{token} (placed)" if is_placed else str(token), **look)
        for end in range(steps, len(line)):
            if (np.diff(line[end - steps : end + 1]) > 0).all():
                axes.plot(passes[end - steps : end + 1], line[end - steps : end + 1], lw=4, **look)
        guessed = guesses == token
        axes.plot(passes[guessed], line[guessed], "o", ms=4, mfc="white", **look)
    axes.plot(passes[-1], probs[-1, 0], "o", ms=8, color=FATE_COLOURS["k"])
    row, col = trace.layout.row_col(step.start + offset) or (0, 0)
    axes.set(xlabel="pass", ylabel="log10 probability", title=f"row {row + 1}, column {col + 1}")
    axes.legend(frameon=False, fontsize="small", title="token; ○ guessed")


def by_window(methods: Mapping[str, Any], laws: Sequence[str]) -> Figure:
    """Growth shares of SJD by window beside chance; what each law of the guesses shares with the target's.

    methods: as `benchmarks.growth` writes them, where a figure has value, low and high. laws: names of those shown.
    """
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    plain = {one["window"]: one for one in methods.values() if one["method"] == "sjd"}
    windows = sorted(plain)
    for fate, colour in (("kept", FATE_COLOURS["k"]), ("refused", FATE_COLOURS["r"])):
        for steps, mark in zip(STEPS, "os^", strict=True):
            cells = [plain[window]["growth"][fate]["all"][steps] for window in windows]
            values = [cell["grew"].value for cell in cells]
            spread = np.abs([[cell["grew"].low, cell["grew"].high] for cell in cells] - np.array(values)[:, None]).T
            left.errorbar(windows, values, spread, color=colour, marker=mark, capsize=2, label=f"{fate}, N = {steps}")
    for steps in STEPS:
        levels = [plain[window]["growth"]["kept"]["all"][steps]["chance"].value for window in windows]
        left.plot(windows, levels, color="black", ls=":", lw=1, label="chance" if steps == 1 else None)
    left.set_xscale("log", base=2)
    left.set_xticks(windows, windows)
    left.set(xlabel="window", ylabel="share that grew N times in a row", ylim=(0, 1))
    left.legend(frameon=False, fontsize="small", ncols=2)
    for at, window in enumerate(windows):
        rows = [plain[window]["overlap"][name]["mean"] for name in laws]
        places = np.arange(len(laws)) + 0.8 * (at - (len(windows) - 1) / 2) / len(windows)
        right.barh(places, [row.value for row in rows], 0.7 / len(windows), label=f"window {window}", color=f"C{at}")
    right.set_yticks(range(len(laws)), laws)
    right.invert_yaxis()
    right.set(xlabel="sum min(p, q) of checked guesses: their chance to be kept", xlim=(0, 1))
    right.legend(frameon=False, fontsize="small")
    return figure
