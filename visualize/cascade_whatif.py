"""CASCADE's tests of a round under other terms, the dice as they fell: `assets/cascade.js` in Python.

What a guess could borrow stands in the notes, so its chance can be worked out anew. That is exact up to the first
decision that falls out otherwise; past it the walk would have gone elsewhere, and only chances are told.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.primitives.trace import Step


PARENT = -2  # as a lender


@dataclass(frozen=True)
class Round:
    """What the tests of a round go by. N nodes, of which k were judged, in the order of `judged`."""

    tokens: np.ndarray
    parents: np.ndarray
    p: np.ndarray
    q: np.ndarray
    dice: np.ndarray
    """[N] each, as in `Step`"""
    judged: np.ndarray
    """[k] nodes"""
    offers: np.ndarray
    """[k, N] what p gives each node's token; nan outside the level of the guess"""
    parent_offer: np.ndarray
    """[k]"""
    alike: np.ndarray
    """[n] cosines of the pairs that `pairs` lists"""


@dataclass(frozen=True)
class Again:
    """A guess judged anew. strict: its chance by the exact rule. loans: lender, offered, used, as they are spent."""

    node: int
    strict: float
    chance: float
    loans: list[tuple[int, float, float]]

    @property
    def moved(self) -> float:
        """What all lenders give together."""
        return sum(used for *_, used in self.loans)


def depths(parents: np.ndarray) -> np.ndarray:
    """[N] depth of every node, 1 below the root."""
    found: list[int] = []
    for parent in parents.tolist():
        found.append(1 if parent < 0 else found[parent] + 1)
    return np.array(found, int)


def pairs(parents: np.ndarray) -> list[tuple[int, int]]:
    """Which cosines the rule goes by: each node with its parent, then any two of a level, the earlier first."""
    depth = depths(parents)
    level = np.argwhere(np.triu(depth[:, None] == depth, 1)).tolist()
    return [*enumerate(parents.tolist()), *map(tuple, level)]


def alike(step: Step) -> np.ndarray | None:
    """[n] cosines of `pairs`; None where nothing was compared."""
    if "similarity" not in step.notes:
        return None
    first, second = np.array(pairs(step.parents)).T + 1
    return step.notes["similarity"][first, second].astype(np.float64)


def level_offers(step: Step) -> np.ndarray | None:
    """[k, N] what p gives the tokens of the guess's own level, nan elsewhere; None where nothing was judged so."""
    if "offers" not in step.notes:
        return None
    depth = depths(step.parents)
    return np.where(depth[step.notes["judged"]][:, None] == depth, step.notes["offers"], np.nan).astype(np.float64)


def told(step: Step) -> Round:
    """A round of a trace. Raises ValueError for one that CASCADE judged nothing in."""
    if "similarity" not in step.notes:
        raise ValueError(f"`step` must be a round in which CASCADE judged a guess, got round {step.index} of none.")
    laws = (values.astype(np.float64) for values in (step.p, step.q, step.dice))
    notes = step.notes
    return Round(
        step.tokens, step.parents, *laws, notes["judged"], level_offers(step), notes["parent_offer"], alike(step)
    )


def judge_again(of: Round, settings: Mapping[str, Any]) -> list[Again]:
    """Every judged guess under `settings` of CascadePipeline, temperature among them."""
    depth = depths(of.parents)
    cosines = {pair: value for pair, value in zip(pairs(of.parents), of.alike.tolist())}
    found, lent = [], 0.0
    for index, node in enumerate(of.judged.tolist()):
        p, q = float(of.p[node]), float(of.q[node])
        strict = min(1.0, p / q)
        loans, left, held = [], settings["delta"], p
        for lender in _lenders(of, node, depth, cosines, settings):
            offered = float(of.offers[index, lender])
            loans.append((lender, offered, min(offered, left)))
            left, held = left - loans[-1][2], held + loans[-1][2]
        own, parent_offer = cosines[node, int(of.parents[node])], float(of.parent_offer[index])
        if settings["converge"] == "on" and own >= settings["tau_parent"] and parent_offer > 0:
            offered = min(parent_offer, max(0.0, 1 - held))
            loans.append((PARENT, offered, min(offered, left)))
        chance = min(1.0, (p + sum(used for *_, used in loans)) / q)
        if settings["budget"] == "step":
            chance = min(chance, strict + max(0.0, settings["delta"] - lent))
        if settings["temperature"] < 1e-4:
            chance = float(chance == 1 or (settings["budget"] == "test" and chance > 0.5))
        chance = 1.0 if strict == 1 else chance
        lent += max(0.0, chance - strict)
        found.append(Again(node, strict, chance, loans))
    return found


def first_change(of: Round, before: Mapping[str, Any], after: Mapping[str, Any]) -> int | None:
    """Which test is the first whose decision differs with the same dice; None where all that can be told are the same.

    before: settings of the run. Where its refusals hand on what the rule left over (`residual` "gstar"), nothing can
    be told past a refusal of another chance.
    """
    for index, (old, new) in enumerate(zip(judge_again(of, before), judge_again(of, after))):
        dice = of.dice[old.node]
        if (dice < old.chance) != (dice < new.chance):
            return index
        if before["residual"] == "gstar" and dice >= old.chance != new.chance:
            return None
    return None


def _lenders(
    of: Round, node: int, depth: np.ndarray, cosines: dict[tuple[int, int], float], settings: Mapping[str, Any]
) -> list[int]:
    """Nodes of the level that lend, the most alike first, one for each other token."""
    if settings["interchange"] == "off":
        return []
    near = []
    for other in np.flatnonzero(depth == depth[node]).tolist():
        cosine = cosines.get((min(node, other), max(node, other)), -np.inf)
        is_near = of.tokens[other] != of.tokens[node] and cosine >= settings["tau_level"]
        if is_near and (settings["scope"] == "level" or of.parents[other] == of.parents[node]):
            near.append((-cosine, other))
    first: dict[int, int] = {}
    for _, other in sorted(near):
        first.setdefault(int(of.tokens[other]), other)
    return list(first.values())
