"""What a person can choose from over one model: methods and their knobs."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pipelines
from pipelines.contest import Ask
from pipelines.pipeline_speculative import DraftSettings
from pipelines.settings import SAMPLING, Knob, Sampling, read_defaults


DRAFTING = {field.name for field in fields(DraftSettings)}  # what all drafting methods share comes after their own


@dataclass(frozen=True)
class Menu:
    """Knobs of sampling, and those of each method that the model is fit for; their defaults are the model's own."""

    sampling: list[Knob]
    methods: dict[str, list[Knob]]

    def ask(self, prompt: str, seed: int, opponent: str, method: str, *values: Any) -> Ask:
        """What a page's controls say. opponent: keeps to its defaults, "" for none; values: see `knobs`."""
        named = {knob: value for knob, value in zip(self.knobs(), values, strict=True)}
        chosen = {
            owner: {name: value for (whose, name), value in named.items() if whose == owner}
            for owner in (SAMPLING, method)
        }
        rivals = [(opponent, {})] if opponent else []
        return Ask(prompt, seed, [*rivals, (method, chosen[method])], chosen[SAMPLING])

    def preset(self, wanted: dict[str, Any]) -> list[Any]:
        """What `ask` takes, for method, opponent, settings, sampling, prompt and seed by name."""
        own = {SAMPLING: wanted["sampling"], wanted["method"]: wanted["settings"]}
        values = [own.get(owner, {}).get(name, default) for (owner, name), default in self.knobs().items()]
        return [wanted["prompt"], wanted["seed"], wanted["opponent"] or "", wanted["method"], *values]

    def knobs(self) -> dict[tuple[str, str], Any]:
        """Owner and name of every knob, sampling first, and its default."""
        owners = {SAMPLING: self.sampling} | self.methods
        return {(owner, knob.name): knob.default for owner, knobs in owners.items() for knob in knobs}

    def defaults(self) -> dict[str, dict[str, Any]]:
        """Sampling and settings of each method where a call says nothing."""
        return {
            owner: {knob.name: knob.default for knob in [*self.sampling, *knobs]}
            for owner, knobs in self.methods.items()
        }


def open_menu(folder: Path, vocabulary: int) -> Menu:
    """Of a model folder; loads no weights. vocabulary: number of codes.

    Raises ValueError for a default of the folder that is unknown or out of range.
    """
    defaults = read_defaults(folder)
    kinds = {name: getattr(pipelines, name) for name in pipelines.METHODS}
    drafts = (folder / "draft_model").is_dir()

    def knobs(owner: str, settings: Any) -> list[Knob]:
        found = settings().revise(defaults.get(owner, {}), owner, vocabulary).knobs(vocabulary).values()
        return sorted(found, key=lambda knob: knob.name in DRAFTING)

    fit = {name: kind.Settings for name, kind in kinds.items() if drafts or not kind.needs_draft_model}
    return Menu(knobs(SAMPLING, Sampling), {name: knobs(name, settings) for name, settings in fit.items()})


def read_json(path: Path, entries: tuple[str, ...]) -> dict[str, Any]:
    """Raises ValueError, naming the file, where there is none or it does not hold the entries, none of them empty."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"`model` must be a model's folder, got {str(path)!r} that cannot be read: {error}."
        ) from error
    if not isinstance(found, dict) or not all(found.get(name) for name in entries):
        raise ValueError(f"`model` must be a model's folder, got {str(path)!r} without {', '.join(entries)}.")
    return found
