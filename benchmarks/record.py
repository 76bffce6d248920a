"""What one race of methods leaves behind: the numbers, the machine they hold for, and their JSON file.

Counts and clocks: `nfe` is one image's target forwards, prefill included; `seconds` runs from the prefill to the last
token, without text encoding and without turning tokens into pixels.
"""

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


RESULTS = Path(__file__).parent / "results"
RESAMPLES = 2000


def command(main: Callable[[], None]) -> None:
    """Run a command; a ValueError ends it with its first line on stderr and status 2."""
    try:
        main()
    except ValueError as error:
        print(next(iter(str(error).splitlines()), repr(error)), file=sys.stderr)
        sys.exit(2)


def check_writable(option: str, path: Path) -> None:
    """Make the folder of the file `path` and raise ValueError where the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            if path.is_dir() or not os.access(path, os.W_OK):
                raise PermissionError("no file that may be written over")
        else:
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"`{option}` must be a file that can be written; {str(path)!r} is not ({reason}).") from error


@dataclass(frozen=True)
class Interval:
    """A median and the 95 % bootstrap interval around it."""

    median: float
    low: float
    high: float


def interval(values: list[float]) -> Interval:
    """Percentile bootstrap of the median over images; the resampling is seeded, so a file can be made again."""
    resampled = np.random.default_rng(0).choice(np.asarray(values), (RESAMPLES, len(values)))
    low, high = np.percentile(np.median(resampled, axis=1), [2.5, 97.5])
    return Interval(float(np.median(values)), float(low), float(high))


@dataclass(frozen=True)
class Machine:
    """The class of machine that a time holds for."""

    processor: str
    cores: int
    threads: int
    device: str
    dtype: str
    torch: str


@dataclass(frozen=True)
class MethodRecord:
    """One method in a race. The lists have one entry per image, in the order of the prompts."""

    pipeline: str
    image_seconds: list[float]
    image_nfe: list[int]
    seconds: Interval  # per image
    ms_per_token: Interval
    speedup: Interval  # AR's seconds over this method's, image by image
    nfe: float
    accepted_length: float
    ceiling: float  # accepted_length x t(1) / (t(n) + draft seconds per round), t being the race's own mean forwards
    draft_share: float  # of all seconds
    target_share: float
    rest_share: float  # the walk, the cache, the loop
    draft_calls: float = 0.0  # forwards of a drafter network per image
    settings: dict[str, object] = field(default_factory=dict)  # changed for this race, beside the model's defaults

    @property
    def outside_share(self) -> float:
        """Share of all seconds outside every forward: drafting counts where no network drafts."""
        return self.rest_share + (0 if self.draft_calls else self.draft_share)


@dataclass(frozen=True)
class RaceRecord:
    """A race: every method drew the same prompts with the same seeds, one image each in turn."""

    date: str
    model: str
    weights_sha256: str
    machine: Machine
    seed: int
    prompts: list[str]
    sampling: dict[str, float]
    image_tokens: int
    cached_tokens: int  # cache length at which the forwards below were timed, in image tokens
    forward_ms: dict[str, float]  # t(n): one target forward over n tokens
    products_ms: float  # the matrix products of t(1), run alone
    methods: dict[str, MethodRecord]

    @property
    def products_ratio(self) -> float:
        """AR's time per token over the bare matrix products of one forward."""
        return self.methods["ar"].ms_per_token.median / self.products_ms

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n")


def load(path: Path) -> RaceRecord:
    """Read what `RaceRecord.save` wrote. Raises ValueError where the file is not one."""
    try:
        fields = json.loads(path.read_text())
        fields["machine"] = Machine(**fields["machine"])
        fields["methods"] = {name: method_record(method) for name, method in fields["methods"].items()}
        return RaceRecord(**fields)
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"`{path.name}` is not a record of benchmarks.run ({error}); measure again.") from error


def method_record(fields: dict[str, object]) -> MethodRecord:
    intervals = {name: Interval(**fields[name]) for name in ("seconds", "ms_per_token", "speedup")}
    return MethodRecord(**fields | intervals)
