"""What a person may set: every knob with its range and its words. Knows nothing of models, tensors or pages."""

import difflib
import json
import math
import numbers
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from reprlib import repr as shown
from typing import Any, Self, get_args

from pipelines.primitives.tree import tree_paths


# As `high`: the range ends at the number of codes, which the model knows and the settings do not.
VOCABULARY = "vocabulary"

DEFAULTS_FILE = "method_defaults.json"
SAMPLING = "sampling"

Value = int | float | str | list | None
"""What a knob may be set to, as JSON has it."""


@dataclass(frozen=True)
class Knob:
    """One setting: its type, its range, its words. A slider, a list or a switch can be drawn from it.

    low, high: ends of the range, both allowed; None where there is no end. step: the smallest useful change.
    choices: all values there are, in place of a range. is_optional: None is a value too. takes_paths: so is a list of
    paths of child ranks, a tree's shape.
    """

    name: str
    kind: type[int] | type[float] | type[str]
    default: Value
    low: float | None
    high: float | None
    step: float | None
    choices: tuple[int | str, ...]
    is_optional: bool
    takes_paths: bool
    label: str
    help: str

    def check(self, value: Any) -> Value:
        """`value` as this knob's own type. Raises ValueError, with the range, for a wrong type or a value outside."""
        if value is None and self.is_optional:
            return None
        if self.takes_paths and isinstance(value, list | tuple):
            return tree_paths(value)
        if not (self._is_of_kind(value) and self._is_in_range(value)):
            raise ValueError(f"`{self.name}` must be {self.allowed()}, got {shown(value)}.")
        return self.kind(value)

    def allowed(self) -> str:
        """The range in words: "a whole number from 2 to 64"."""
        others = " or None" * self.is_optional + " or a list of paths of child ranks" * self.takes_paths
        if self.choices:
            return f"one of {', '.join(map(str, self.choices))}{others}"
        noun = "a whole number" if self.kind is int else "a number"
        if self.high is None:
            return f"{noun}, at least {self.low:g}{others}"
        return f"{noun} from {self.low:g} to {self.high:g}{others}"

    def _is_of_kind(self, value: Any) -> bool:
        if self.kind is str:
            return isinstance(value, str)
        number = numbers.Integral if self.kind is int else numbers.Real
        return isinstance(value, number) and not isinstance(value, bool)

    def _is_in_range(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        is_between = self.low <= value <= (math.inf if self.high is None else self.high)
        return is_between and (isinstance(value, numbers.Integral) or math.isfinite(value))


def knob(
    default: Value,
    *,
    low: float | None = None,
    high: float | str | None = None,
    step: float | None = None,
    choices: tuple[int | str, ...] = (),
    label: str,
    help: str,
) -> Any:
    """Field of a `Settings` class. The field's annotation is the knob's type; a number needs `choices` or `low`.

    A type with `| None` makes None a value, one with `| list` makes lists of paths values.
    """
    words = {"low": low, "high": high, "step": step, "choices": choices, "label": label, "help": help}
    return field(default=default, metadata=words)


@dataclass(frozen=True)
class Settings:
    """What a method may be told beside the prompt; every field is a `knob`, checked when the object is made."""

    def __post_init__(self) -> None:
        for name, knob in self.knobs().items():
            object.__setattr__(self, name, knob.check(getattr(self, name)))

    def knobs(self, vocabulary: int | None = None) -> dict[str, Knob]:
        """The knobs by name, in order, this object's values being the defaults.

        vocabulary: number of codes; ranges that end there are open without it.
        """
        knobs = {}
        for item in fields(self):
            words = dict(item.metadata)
            if words["high"] == VOCABULARY:
                words["high"] = vocabulary
            kind, *others = get_args(item.type) or (item.type,)
            knobs[item.name] = Knob(
                name=item.name,
                kind=kind,
                default=getattr(self, item.name),
                is_optional=type(None) in others,
                takes_paths=list in others,
                **words,
            )
        return knobs

    def revise(self, values: Mapping[str, Any], owner: str, vocabulary: int | None = None) -> Self:
        """A copy with some values changed. `owner` is whom the message names as having such settings.

        Raises ValueError for a name that is unknown and for a value of a wrong type or out of range.
        """
        knobs = self.knobs(vocabulary)
        for name, value in values.items():
            if name not in knobs:
                raise ValueError(_unknown(name, knobs, owner))
            knobs[name].check(value)
        return replace(self, **values)

    def to_dict(self) -> dict[str, Value]:
        """Plain values by name, as files keep them."""
        return asdict(self)


def _unknown(name: str, knobs: dict[str, Knob], owner: str) -> str:
    near = difflib.get_close_matches(name, knobs, n=1)
    hint = f"; did you mean `{near[0]}`, {knobs[near[0]].allowed()}?" if near else "."
    known = ", ".join(f"`{knob}`" for knob in knobs) or "none"
    return f"`{name:.40}` is not a setting of {owner}, which has {known}{hint}"


@dataclass(frozen=True)
class Sampling(Settings):
    """From logits to the law that is drawn from; the same for every method. Applied in the order of the fields."""

    guidance_scale: float = knob(
        1.0,
        low=1.0,
        high=20.0,
        step=0.1,
        label="Guidance",
        help="How strongly the prompt pulls; 1 is the model's own law.",
    )
    temperature: float = knob(
        1.0,
        low=0.0,
        high=2.0,
        step=0.05,
        label="Temperature",
        help="Below 1 the likely tokens gain; 0 always takes the likeliest.",
    )
    top_k: int = knob(
        0,
        low=0,
        high=VOCABULARY,
        step=1,
        label="Top-k",
        help="Only the k likeliest tokens may be drawn; 0 allows all.",
    )
    top_p: float = knob(
        1.0,
        low=0.0,
        high=1.0,
        step=0.01,
        label="Top-p",
        help="Only the likeliest tokens that together have this probability may be drawn; 1 allows all.",
    )


def read_defaults(folder: Path) -> dict[str, dict[str, Any]]:
    """What a model folder says of its own defaults: {"sampling": {...}, class name of a method: {...}}.

    Empty where the folder has no `method_defaults.json`. Raises ValueError for a file of another shape.
    """
    path = folder / DEFAULTS_FILE
    if not path.exists():
        return {}
    try:
        groups = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"`{path}` must be a JSON object of objects, but it is not JSON: {error}.") from error
    if not isinstance(groups, dict) or not all(isinstance(group, dict) for group in groups.values()):
        raise ValueError(f'`{path}` must be a JSON object of objects, such as {{"{SAMPLING}": {{"top_k": 0}}}}.')
    return groups


def write_defaults(folder: Path, groups: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep a model's own defaults beside its weights; a model that has none gets no file."""
    if groups:
        (folder / DEFAULTS_FILE).write_text(json.dumps(groups, indent=2) + "\n", encoding="utf-8")
