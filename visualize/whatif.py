"""What a run would have done under another rule, with the same guesses and the same dice.

Exact within a round of a chain: the target scored all guesses, so p and q are known beyond a refusal. What comes after
a decision that turns out otherwise is not: there would have been other guesses. The page has a twin of this,
assets/rules.js.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.primitives.trace import Step, Trace


@dataclass(frozen=True)
class Scaled:
    """Keeps a guess of depth i with min(1, ω_i p/q). schedule: ω of depth 1, 2, ..; all 1 is the exact rule."""

    schedule: Sequence[float]

    def chance(self, step: Step, depth: np.ndarray) -> np.ndarray:
        """[N] of each guess of a round; depth: [N] theirs."""
        return np.minimum(1, np.asarray(self.schedule)[depth - 1] * step.p.astype(np.float64) / step.q)

    def altered(self, own: "Scaled", step: Step, depth: np.ndarray) -> np.ndarray:
        """[N] whether a refused guess leaves another law to later siblings than under `own`: only below ω = 1."""
        factors, before = (np.minimum(1, np.asarray(rule.schedule)[depth - 1]) for rule in (self, own))
        return factors != before

    def open(self, step: Step) -> np.ndarray:
        """[N] whether a chance is only known to be at least what `chance` says."""
        return np.zeros(len(step.tokens), bool)


@dataclass(frozen=True)
class Borrowing:
    """Keeps a guess with min(1, (p + what it borrows)/q): LANTERN's rule with `delta`, LANTERN++'s with `lam`.

    neighbours, residual: the run's own; see pipelines/pipeline_lantern.py, whose notes hold the masses.
    """

    neighbours: int
    delta: float | None = None
    lam: float | None = None
    residual: str = "gstar"

    def budget(self, step: Step) -> np.ndarray:
        """[N] most that each guess may borrow."""
        return np.full(len(step.p), self.delta) if self.lam is None else (self.lam - 1) * step.p

    def lenders(self, step: Step) -> np.ndarray:
        """[N] how many of the nearest codes lend to each guess, as far as their masses were kept."""
        masses = step.notes["masses"][:, : self.neighbours]
        return (masses <= self.budget(step)[:, None]).cumprod(1).sum(1)

    def chance(self, step: Step, depth: np.ndarray) -> np.ndarray:
        return np.minimum(1, (step.p + _lent(step, self.lenders(step))) / step.q)

    def altered(self, own: "Borrowing", step: Step, depth: np.ndarray) -> np.ndarray:
        return (self.lenders(step) != own.lenders(step)) & (self.residual != "gstar")

    def open(self, step: Step) -> np.ndarray:
        most = step.notes["masses"].shape[1]
        lent = _lent(step, np.full(len(step.p), most))
        reaches = (self.lenders(step) == most) & (lent < self.budget(step)) & (step.p + lent < step.q)
        return reaches & (self.neighbours > most)


Rule = Scaled | Borrowing


@dataclass(frozen=True)
class Outcome:
    """What a rule would have done.

    length: tokens a pass by expectation; of a tree, only levels with judged guesses count. infidelity: sum over judged
    guesses of max(0, f - min(1, p/q)), per token. rounds: how many had guesses. changed: round and node of each first
    decision that turns out otherwise. open: guesses whose chance is at least what it is taken for.
    """

    length: float
    infidelity: float
    rounds: int
    changed: list[tuple[int, int]]
    open: int


def what_if(trace: Trace, rule: Rule, own: Rule) -> Outcome:
    """`trace` under `rule`; own: the rule it was made by. Raises ValueError where a borrowing rule finds no masses."""
    kept, infidelity, opened, changed = 0.0, 0.0, 0, []
    guessed = [step for step in trace.steps if len(step.tokens)]
    for step in guessed:
        if isinstance(rule, Borrowing) and "masses" not in step.notes:
            raise ValueError(f"`trace` must hold the notes `masses`, round {step.index} has none; record it anew.")
        depth = _depths(step)
        chance, judged = rule.chance(step, depth), ~np.isnan(step.dice)
        kept += expected_kept(chance, depth, judged)
        infidelity += np.maximum(0, chance - np.minimum(1, step.p.astype(np.float64) / step.q))[judged].sum()
        opened += int(rule.open(step).sum())
        node = _first_change(step, depth, judged, rule, own)
        changed += [(step.index, node)] if node is not None else []
    passes, squares = len(trace.steps) - 1, len(trace.tokens) - len(trace.layout.forced)
    length = 1 + kept / passes if passes > 0 else math.nan
    return Outcome(length, infidelity / squares, len(guessed), changed, opened)


def expected_kept(chance: np.ndarray, depth: np.ndarray, judged: np.ndarray) -> float:
    """Guesses that a pass keeps: the sum over depths of the chance to come so far. [N] each."""
    counts = judged | (len(np.unique(depth)) == len(depth))  # in a chain all of them
    missed = [np.prod(1 - chance[counts & (depth == level)]) for level in np.unique(depth[counts])]
    return float(np.cumprod(1 - np.array(missed)).sum())


def _first_change(step: Step, depth: np.ndarray, judged: np.ndarray, rule: Rule, own: Rule) -> int | None:
    """The first guess that the rule decides otherwise; none where the law it is judged by is not known."""
    was, now = (step.dice < one.chance(step, depth) for one in (own, rule))
    altered = rule.altered(own, step, depth)
    for node in sorted(np.flatnonzero(judged), key=lambda node: (depth[node], node)):
        if was[node] != now[node]:
            return int(node)
        if not now[node] and altered[node]:
            return None
    return None


def _depths(step: Step) -> np.ndarray:
    depth = {-1: 0}
    for node, parent in enumerate(step.parents.tolist()):
        depth[node] = depth[parent] + 1
    return np.array([depth[node] for node in range(len(step.parents))], int)


def _lent(step: Step, count: np.ndarray) -> np.ndarray:
    """[N] mass of the `count` nearest codes of each guess."""
    masses = np.pad(step.notes["masses"].astype(np.float64), ((0, 0), (1, 0)))
    return np.take_along_axis(masses, count[:, None], 1)[:, 0]
