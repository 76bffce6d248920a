"""What a person can choose from over one model: methods and their knobs."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pipelines
from pipelines.contest import Ask
from pipelines.settings import SAMPLING, Knob, Sampling, read_defaults


def open_knobs(folder: Path, vocabulary: int) -> dict[str, list[Knob]]:
    """Knobs of sampling and of each method, with a model folder's own defaults, read without loading weights.

    vocabulary: number of codes. Raises ValueError for a default that is unknown or out of range.
    """
    defaults = read_defaults(folder)
    kinds = {SAMPLING: Sampling} | {name: getattr(pipelines, name).Settings for name in pipelines.METHODS}
    return {
        owner: list(kind().revise(defaults.get(owner, {}), owner, vocabulary).knobs(vocabulary).values())
        for owner, kind in kinds.items()
    }


def asked(knobs: dict[str, list[Knob]], prompt: str, seed: int, opponent: str, method: str, *values: Any) -> Ask:
    """What a page's controls say. values: one a knob, in order; the opponent, "" for none, keeps to its defaults."""
    chosen: dict[str, dict[str, Any]] = defaultdict(dict)
    named = [(owner, knob.name) for owner, group in knobs.items() for knob in group]
    for (owner, name), value in zip(named, values, strict=True):
        chosen[owner][name] = value
    rivals = [(opponent, {})] if opponent else []
    return Ask(prompt, seed, [*rivals, (method, chosen[method])], chosen[SAMPLING])
