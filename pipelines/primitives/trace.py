"""What a run leaves behind: its steps, and a file of them. Knows nothing of torch; every plot is drawn from here."""

import io
import json
import math
import tokenize
import zipfile
import zlib
from dataclasses import asdict, dataclass, field, fields
from os import PathLike
from pathlib import Path
from reprlib import repr as shown

import numpy as np

from pipelines.primitives.layout import Layout


FORMAT = 1
MAX_UNPACKED_BYTES = 64 * 2**20  # far above any run's; what claims more is not read
MAX_SQUARES = 2**16

# Step fields as arrays in a file: one entry per node, per row (root and nodes), per kept node or per step.
NODE = {"tokens": "i4", "parents": "i4", "p": "f4", "q": "f4", "accept_prob": "f8", "dice": "f8"}
ROW = {"top_tokens": "i4", "top_probs": "f4", "entropy": "f4"}
STEP = {"draft_calls": "i4", "draft_seconds": "f8", "target_seconds": "f8", "rest_seconds": "f8"}
SIZES = {"nodes": "i4", "kept": "i4"}
PATHS = {"path": "i4", "committed": "i4"}
# What zip, numpy and json raise on bytes that are not theirs.
NOT_READABLE = (ValueError, LookupError, TypeError, AttributeError, OSError, EOFError, RuntimeError, MemoryError)
NOT_READABLE += (zipfile.BadZipFile, zlib.error, tokenize.TokenError)


@dataclass(frozen=True, eq=False)
class Step:
    """One round: what was guessed, what the target said, what joined the image. N nodes, n of them kept."""

    index: int
    """Round; 0 is the prefill."""
    start: int
    """Position in the sequence of depth 1: as many tokens were committed before."""
    tokens: np.ndarray
    """[N] int32 the draft, parents first."""
    parents: np.ndarray
    """[N] int32, -1 is the root."""
    p: np.ndarray
    """[N] float32 target probability each node was judged by, after earlier refusals; before any where not judged."""
    q: np.ndarray
    """[N] float32 draft probability of each node's token, earlier siblings refused."""
    accept_prob: np.ndarray
    """[N] float64, nan where never judged."""
    dice: np.ndarray
    """[N] float64 uniforms, kept where below accept_prob; nan where never judged."""
    path: np.ndarray
    """[n] int32 kept nodes, depth 1 first."""
    committed: np.ndarray
    """[n + 1] int32 tokens that joined the image."""
    top_tokens: np.ndarray
    """[1 + N, 8] int32 likeliest tokens of the target's law, root first; fewer columns for a smaller vocabulary."""
    top_probs: np.ndarray
    """[1 + N, 8] float32."""
    entropy: np.ndarray
    """[1 + N] float32 of the target's law, in nats."""
    draft_calls: int
    """Forwards of a drafter network."""
    draft_seconds: float
    target_seconds: float
    rest_seconds: float
    notes: dict[str, np.ndarray]
    """What this method alone can tell."""

    @property
    def seconds(self) -> float:
        return self.draft_seconds + self.target_seconds + self.rest_seconds


@dataclass(frozen=True)
class Header:
    """Under which circumstances a run was made. settings: sampling and method knobs, JSON values."""

    method: str
    model: str
    weights_sha256: str
    dtype: str
    torch_version: str
    threads: int
    device: str
    settings: dict[str, object]
    seed: int | None
    prompt: str
    negative_prompt: str | None = None


@dataclass
class Trace:
    """The log of one run. Its four summary numbers are the only ones; plots compute their own."""

    header: Header
    layout: Layout
    steps: list[Step] = field(default_factory=list)

    @property
    def tokens(self) -> np.ndarray:
        """[n] int32 tokens committed so far, forced ones included."""
        return np.concatenate([np.empty(0, np.int32), *(step.committed for step in self.steps)])

    @property
    def nfe(self) -> int:
        """Target forwards, prefill included; a guidance pair is one. AR: as many as tokens."""
        return len(self.steps)

    @property
    def accepted_length(self) -> float:
        """Tokens that joined after the prefill, over checking passes; AR: 1. nan before the first checking pass."""
        return (len(self.tokens) - 1) / (self.nfe - 1) if self.nfe > 1 else math.nan

    @property
    def seconds(self) -> float:
        """Draft, target and rest of all rounds; prefill in it; text encoding, image decoding and drawing not."""
        return sum(step.seconds for step in self.steps)

    @property
    def complete(self) -> bool:
        return len(self.tokens) == self.layout.length

    def save(self, path: str | PathLike) -> None:
        """Write `to_bytes` as a file. Loading gives the same trace to the bit."""
        Path(path).write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """An .npz of plain arrays."""
        head = {"format": FORMAT, **asdict(self.header), "rows": self.layout.rows, "cols": self.layout.cols}
        head["forced"] = [list(pair) for pair in self.layout.forced.items()]
        arrays = {"header": np.frombuffer(json.dumps(head).encode(), np.uint8)}
        for name, dtype in (NODE | ROW | PATHS).items():
            arrays[name] = _joined([getattr(step, name) for step in self.steps], dtype, _axes(name))
        for name, dtype in STEP.items():
            arrays[name] = np.array([getattr(step, name) for step in self.steps], dtype)
        arrays["nodes"] = np.array([len(step.tokens) for step in self.steps], "i4")
        arrays["kept"] = np.array([len(step.path) for step in self.steps], "i4")
        file = io.BytesIO()
        np.savez_compressed(file, **arrays, **_packed_notes(self.steps))
        return file.getvalue()


def load(path: str | PathLike) -> Trace:
    """Read a trace. Raises ValueError where there is no such file, or it is none, truncated, or contradicts itself."""
    try:
        with open(path, "rb") as file:
            arrays = _unzipped(file)
        head = json.loads(arrays["header"].tobytes())
        found = head.pop("format")
    except NOT_READABLE as error:
        raise ValueError(f"`path` must be a Draftboard trace (.npz), {path} is none, missing or truncated.") from error
    if found != FORMAT:
        found = shown(found)
        raise ValueError(f"`path` must be a trace of format {FORMAT}, {path} has format {found}; record it anew.")
    try:
        trace = Trace(_header(head), _layout(head), _steps(arrays))
        _check(trace)
    except NOT_READABLE as error:
        raise ValueError(f"`path` must be a whole Draftboard trace, in {path} {str(error).rstrip('.')}.") from error
    return trace


def _unzipped(file) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(file) as members:
        if sum(member.file_size for member in members.infolist()) > MAX_UNPACKED_BYTES:
            raise ValueError("too large for a trace")
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _axes(name: str) -> int:
    return 2 if name.startswith("top_") else 1


def _joined(parts: list[np.ndarray], dtype: str, axes: int) -> np.ndarray:
    if not parts:
        return np.empty((0,) * axes, dtype)
    joined = np.concatenate(parts)
    assert joined.dtype == dtype, f"a step holds {joined.dtype} where {dtype} belongs"
    return joined


def _packed_notes(steps: list[Step]) -> dict[str, np.ndarray]:
    """Every note as three arrays: the rounds that have it, the shapes there, and all values end to end."""
    packed = {}
    for name in sorted({name for step in steps for name in step.notes}):
        rounds = [index for index, step in enumerate(steps) if name in step.notes]
        notes = [np.asarray(steps[index].notes[name]) for index in rounds]
        if len({(note.dtype, note.ndim) for note in notes}) > 1:
            raise ValueError(f"`notes` must keep one dtype and number of axes a run, {name!r} changes them.")
        packed[f"notes/{name}/rounds"] = np.array(rounds, "i4")
        packed[f"notes/{name}/shapes"] = np.array([note.shape for note in notes], "i4")
        packed[f"notes/{name}/values"] = np.concatenate([note.ravel() for note in notes])
    return packed


def _unpacked_notes(arrays: dict[str, np.ndarray], count: int) -> list[dict[str, np.ndarray]]:
    notes: list[dict[str, np.ndarray]] = [{} for _ in range(count)]
    for name in [key[len("notes/") : -len("/rounds")] for key in arrays if key.endswith("/rounds")]:
        rounds, shapes, values = (arrays[f"notes/{name}/{part}"] for part in ("rounds", "shapes", "values"))
        if len(rounds) != len(shapes) or (shapes < 0).any() or not ((0 <= rounds) & (rounds < count)).all():
            raise ValueError(f"note {name!r} is broken")
        for index, shape, note in zip(rounds, shapes, _split(values, shapes.prod(-1, dtype=np.int64)), strict=True):
            notes[index][name] = note.reshape(shape)
    return notes


def _split(values: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    if (sizes < 0).any() or sizes.sum() != len(values):
        raise ValueError("arrays differ in length")
    return np.split(values, np.cumsum(sizes)[:-1]) if len(sizes) else []


def _steps(arrays: dict[str, np.ndarray]) -> list[Step]:
    for name, dtype in (NODE | ROW | PATHS | STEP | SIZES).items():
        if name not in arrays or arrays[name].dtype != dtype or arrays[name].ndim != _axes(name):
            raise ValueError(f"{name!r} is missing or of the wrong kind")
    nodes, kept = arrays["nodes"].astype(np.int64), arrays["kept"].astype(np.int64)
    if any(len(arrays[name]) != len(nodes) for name in STEP | SIZES):
        raise ValueError("arrays differ in length")
    columns = {name: _split(arrays[name], nodes) for name in NODE}
    columns |= {name: _split(arrays[name], nodes + 1) for name in ROW}
    columns |= {"path": _split(arrays["path"], kept), "committed": _split(arrays["committed"], kept + 1)}
    columns |= {name: arrays[name].tolist() for name in STEP}
    columns["notes"] = _unpacked_notes(arrays, len(nodes))
    starts = np.cumsum([0, *(kept + 1)]).tolist()
    return [
        Step(index=index, start=starts[index], **{name: column[index] for name, column in columns.items()})
        for index in range(len(nodes))
    ]


def _layout(head: dict) -> Layout:
    rows, cols, forced = head["rows"], head["cols"], dict(head["forced"])
    if not all(type(number) is int for number in (rows, cols, *forced, *forced.values())):
        raise ValueError("the layout is not made of whole numbers")
    if rows * cols > MAX_SQUARES:
        raise ValueError(f"the layout has more than {MAX_SQUARES} squares")
    return Layout(rows, cols, forced)


def _header(head: dict) -> Header:
    head = {name: value for name, value in head.items() if name not in ("rows", "cols", "forced")}
    if set(head) != {entry.name for entry in fields(Header)}:
        raise ValueError("the header lacks an entry or has one too many")
    for name, value in head.items():
        optional = name in ("seed", "negative_prompt") and value is None
        kind = {"threads": int, "seed": int, "settings": dict}.get(name, str)
        if not optional and type(value) is not kind:
            raise ValueError(f"{name!r} is not of type {kind.__name__}")
    return Header(**head)


def _check(trace: Trace) -> None:
    if len(trace.tokens) > trace.layout.length:
        raise ValueError(f"{len(trace.tokens)} tokens stand in {trace.layout.length} positions")
    for step in trace.steps:
        nodes = np.arange(len(step.tokens))
        if ((step.parents < -1) | (step.parents >= nodes)).any():
            raise ValueError(f"round {step.index} has a node before its parent")
        if ((step.path < 0) | (step.path >= len(nodes))).any():
            raise ValueError(f"round {step.index} has a path outside its draft")
        above = np.concatenate([[-1], step.path[:-1]]) if len(step.path) else step.path
        if (step.parents[step.path] != above).any() or (step.committed[:-1] != step.tokens[step.path]).any():
            raise ValueError(f"round {step.index} has a path that is none of its draft")
        if any((array < 0).any() for array in (step.tokens, step.committed, step.top_tokens)):
            raise ValueError(f"round {step.index} has a negative token")
