"""What became of each square: how its token was decided and how likely a guess was to be kept. Pure functions."""

import math

import numpy as np

from pipelines.primitives.trace import Step, Trace


DRAWN = "d"
KEPT = "k"
REDRAWN = "r"
EXTRA = "x"
RELAXED = "l"


def fates(step: Step) -> str:
    """One letter for each token that the round committed.

    `KEPT`: a guess that passed the check. `RELAXED`: one that passed, and that the exact rule, min(1, p/q), would have
    refused with the same dice. `REDRAWN`: drawn in place of refused guesses. `EXTRA`: drawn after guesses of which all
    were kept. `DRAWN`: drawn where nothing was guessed.
    """
    exact = step.p.astype(float) / step.q  # in float64, as `ExactRule` does it
    kept = [RELAXED if step.dice[node] >= exact[node] else KEPT for node in step.path]
    if not len(step.tokens):
        return DRAWN
    last = step.path[-1] if kept else -1
    return "".join([*kept, REDRAWN if last in step.parents else EXTRA])


def chances(step: Step) -> list[float]:
    """For each token that the round committed the chance that some guess for its square was kept; nan where none was
    tried: 1 - prod(1 - accept_prob) over the judged siblings.
    """
    tried = ~np.isnan(step.accept_prob)
    siblings = (tried & (step.parents == parent) for parent in (-1, *step.path))
    return [1 - float(np.prod(1 - step.accept_prob[judged])) if judged.any() else math.nan for judged in siblings]


def fate_grid(trace: Trace) -> np.ndarray:
    """[rows, cols] letters of `fates`, empty where no token is yet."""
    return _on_grid(trace, "".join(fates(step) for step in trace.steps), "")


def chance_grid(trace: Trace) -> np.ndarray:
    """[rows, cols] `chances` in the rounds that settled the squares; nan where no guess was tried or no token is."""
    return _on_grid(trace, [chance for step in trace.steps for chance in chances(step)], math.nan)


def _on_grid(trace: Trace, values, empty) -> np.ndarray:
    """Values of committed tokens, where their squares are."""
    rest = trace.layout.length - len(values)
    return np.array([*values, *[empty] * rest])[trace.layout.positions]
