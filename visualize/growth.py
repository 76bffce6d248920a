"""Does a token's probability rise before it is kept? A square's tokens pass by pass, and how often they grew.

SJD-VP, arXiv:2603.27115. Drawn from the notes of Jacobi methods: past_tokens, past_guesses, past_probs of each step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, factorial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipelines.primitives.trace import Step, Trace
from visualize.style import FATE_COLOURS


STEPS = (1, 2, 3)  # N
FLOOR = 1e-6  # probabilities below are drawn here
TOLD = 6  # tokens of a square that are drawn


@dataclass(frozen=True)
class Checked:
    """A guess that was kept or refused.

    square: row by row. probs: [n] its probability in each pass that saw the square, before top-k and top-p; the last
    pass is that which checked it. entropy: of the target's law in that pass, in nats.
    """

    square: int
    probs: np.ndarray
    is_kept: bool
    entropy: float


def has_past(trace: Trace) -> bool:
    """Whether a run tells what the target said pass by pass."""
    return any("past_probs" in step.notes for step in trace.steps)


def checked(trace: Trace) -> list[Checked]:
    """All guesses of a run that were kept or refused, in their order. Guesses for forced positions are left out."""
    found = []
    for step in trace.steps:
        for node in np.flatnonzero(~np.isnan(step.accept_prob)):
            at = trace.layout.row_col(step.start + node)
            if at is not None:
                probs = past(step, node)[:, step.notes["past_tokens"][node].tolist().index(step.tokens[node])]
                is_kept, square = node in step.path, at[0] * trace.layout.cols + at[1]
                found.append(Checked(square, probs, is_kept, float(step.entropy[node])))
    return found


def past(step: Step, offset: int) -> np.ndarray:
    """[n, K] what each pass said of the tokens told of a square that the step placed, from the first that saw it."""
    probs = step.notes["past_probs"][offset]
    return probs[~np.isnan(probs[:, 0])]


def grew(probs: np.ndarray, steps: int) -> bool:
    """Whether the last `steps` changes are all increases; False where there are fewer."""
    return len(probs) > steps and bool((np.diff(probs[-steps - 1 :]) > 0).all())


def chance(probs: np.ndarray, steps: int) -> float:
    """Probability of `grew` had the passes come in random order; 1 / (N + 1)! where no two are equal."""
    if len(probs) <= steps:
        return 0.0
    ways = [1] + [0] * (steps + 1)  # to choose 0, 1, ... N + 1 passes of different probability
    for count in np.unique(probs, return_counts=True)[1].tolist():
        for size in range(steps + 1, 0, -1):
            ways[size] += ways[size - 1] * count
    return ways[-1] / (comb(len(probs), steps + 1) * factorial(steps + 1))


def shares(guesses: Sequence[Checked], steps: int) -> tuple[float, float, int]:
    """Of the guesses with N past passes: the share that grew, its chance level, their number; nan without any."""
    able = [one.probs for one in guesses if len(one.probs) > steps]
    if not able:
        return float("nan"), float("nan"), 0
    hits, level = ([of(probs, steps) for probs in able] for of in (grew, chance))
    return float(np.mean(hits)), float(np.mean(level)), len(able)


def longest_watched(trace: Trace) -> tuple[Step, int]:
    """The step and the offset in it of the square that was placed after the most passes."""
    steps = [step for step in trace.steps if "past_probs" in step.notes]
    places = [(step, offset) for step in steps for offset in range(len(step.committed))]
    return max(places, key=lambda place: len(past(*place)))


def growth(trace: Trace, steps: int = 3) -> Figure:
    """The square with the longest past, and how often guesses of the run grew, beside chance.

    steps: so many increases in a row are drawn thick. Raises ValueError for a run that tells of no past.
    """
    if not has_past(trace):
        raise ValueError(f"`trace` must be of a Jacobi method, got {trace.header.method}, which keeps no past.")
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
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
