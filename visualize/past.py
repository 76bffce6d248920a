"""What Jacobi methods tell of each square's past: probabilities pass by pass, and how often guesses grew.

Growth is that of SJD-VP, arXiv:2603.27115; see `History.notes` for the notes that it is read off.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, factorial

import numpy as np

from pipelines.primitives.trace import Step, Trace


STEPS = (1, 2, 3)  # N
TOLD_PASSES, TOLD_TOKENS = 16, 8  # of a square's past, that a page is told


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


def is_told(trace: Trace) -> bool:
    """Whether a run tells what the target said pass by pass."""
    return any("past_probs" in step.notes for step in trace.steps)


def checked(trace: Trace) -> list[Checked]:
    """All guesses of a Jacobi run that were kept or refused, in their order; of forced positions none."""
    found = []
    for step in trace.steps:
        for node in np.flatnonzero(~np.isnan(step.accept_prob)):
            at = trace.layout.row_col(step.start + node)
            if at is not None:
                is_kept, square = node in step.path, at[0] * trace.layout.cols + at[1]
                found.append(Checked(square, guessed(step, node), is_kept, float(step.entropy[node])))
    return found


def guessed(step: Step, node: int) -> np.ndarray:
    """[n] probability of a checked guess in each pass that saw its square."""
    return past(step, node)[:, step.notes["past_tokens"][node].tolist().index(step.tokens[node])]


def past(step: Step, offset: int) -> np.ndarray:
    """[n, K] what each pass said of the tokens told of a square that the step placed, from the first that saw it."""
    probs = step.notes["past_probs"][offset]
    return probs[~np.isnan(probs[:, 0])]


def grew(probs: np.ndarray, steps: int) -> bool:
    """Whether the last `steps` changes are all increases; False where there are fewer."""
    return len(probs) > steps and bool((np.diff(probs[-steps - 1 :]) > 0).all())


def streaks(step: Step) -> np.ndarray | None:
    """[n, 3] of each checked guess: 1 where it was kept, increases in a row up to the check, passes before the check.

    None for a step that checked nothing, or tells no past.
    """
    if "past_probs" not in step.notes:
        return None
    found = []
    for node in np.flatnonzero(~np.isnan(step.accept_prob)):
        probs = guessed(step, node)
        rows = next((steps for steps in range(len(probs)) if not grew(probs, steps + 1)), 0)
        found.append((node in step.path, rows, len(probs) - 1))
    return np.array(found, float) if found else None


def tokens_told(step: Step) -> np.ndarray | None:
    tokens = step.notes.get("past_tokens")
    return None if tokens is None else tokens[:, :TOLD_TOKENS]


def guesses_told(step: Step) -> np.ndarray | None:
    guesses = step.notes.get("past_guesses")
    return None if guesses is None else guesses[:, -TOLD_PASSES:]


def probs_told(step: Step) -> np.ndarray | None:
    probs = step.notes.get("past_probs")
    return None if probs is None else probs[:, -TOLD_PASSES:, :TOLD_TOKENS]


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
