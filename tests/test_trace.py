"""What a run leaves behind comes back to the bit; what is no trace is refused in one sentence."""

import json
import math
import pickle
import zipfile
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from conftest import Table, generate

from pipelines.decoding.drafters import NoDraft
from pipelines.decoding.jacobi_drafter import JacobiDrafter
from pipelines.decoding.rules import ExactRule
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import NODE, PATHS, ROW, Header, Step, Trace, load


TARGET = Table(seed=7, vocabulary=9, length=4)
LAYOUT = Layout(1, 3, {3: 2})
HEADER = Header(
    method="SJDPipeline",
    model="tiny",
    weights_sha256="0" * 64,
    dtype="float64",
    torch_version=torch.__version__,
    threads=2,
    device="cpu",
    settings={"window": 3, "start": "uniform", "temperature": 1.0, "tree": None},
    seed=11,
    prompt="a panda “on” snow",
)


def recorded(drafter=None) -> Trace:
    drafter = drafter or JacobiDrafter(LAYOUT, 3, "uniform")
    chance = Chance(torch.Generator().manual_seed(0))
    return Trace(HEADER, LAYOUT, generate(TARGET.open(Warp(), 1.0, LAYOUT), drafter, ExactRule(), chance))


def assert_same(found: Trace, expected: Trace) -> None:
    assert (found.header, found.layout) == (expected.header, expected.layout)
    assert len(found.steps) == len(expected.steps)
    for ours, theirs in zip(found.steps, expected.steps):
        for name in [entry.name for entry in fields(Step) if entry.name != "notes"]:
            one, other = np.asarray(getattr(ours, name)), np.asarray(getattr(theirs, name))
            assert one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f"), name
        assert ours.notes.keys() == theirs.notes.keys()
        for name, note in ours.notes.items():
            assert note.dtype == theirs.notes[name].dtype
            np.testing.assert_array_equal(note, theirs.notes[name])


def test_a_trace_comes_back_to_the_bit(tmp_path):
    trace = recorded()
    rng = np.random.default_rng(0)
    for step in trace.steps[1:]:
        count = len(step.tokens)
        step.notes["omega"] = rng.random(count)
        step.notes["similarity"] = rng.random((count, count)).astype(np.float16)
    trace.steps[-1].notes["once"] = np.array(3)
    trace.save(tmp_path / "run.npz")
    found = load(tmp_path / "run.npz")
    assert_same(found, trace)
    assert (found.nfe, found.accepted_length, found.seconds) == (trace.nfe, trace.accepted_length, trace.seconds)
    assert found.complete and found.tokens.tolist() == trace.tokens.tolist()


def test_a_trace_without_steps_comes_back(tmp_path):
    trace = Trace(replace(HEADER, seed=None, negative_prompt="rain"), LAYOUT)
    trace.save(tmp_path / "none.npz")
    assert_same(load(tmp_path / "none.npz"), trace)
    assert trace.nfe == 0 and math.isnan(trace.accepted_length) and not trace.complete


def test_summary_of_autoregression():
    trace = recorded(NoDraft())
    assert trace.nfe == LAYOUT.length and trace.accepted_length == 1.0 and trace.complete
    assert trace.seconds == pytest.approx(sum(step.seconds for step in trace.steps))
    trace.steps.pop()
    assert not trace.complete


def test_the_largest_run_of_the_embedded_model_fits_in_2_mb(tmp_path):
    """256 tokens, none of 64 guesses ever kept, nothing that repeats."""
    nodes, rows, rng = 64, 65, np.random.default_rng(0)
    trace = Trace(HEADER, Layout(16, 16))
    for index in range(256):
        arrays = {name: rng.random(nodes).astype(dtype) for name, dtype in NODE.items()}
        arrays |= {
            "tokens": rng.integers(2048, size=nodes, dtype="i4"),
            "parents": np.arange(-1, nodes - 1, dtype="i4"),
        }
        arrays |= {name: rng.random((rows, 8)).astype(dtype) for name, dtype in ROW.items()}
        arrays |= {"top_tokens": rng.integers(2048, size=(rows, 8), dtype="i4"), "entropy": rng.random(rows, "f4")}
        arrays |= {"path": np.empty(0, "i4"), "committed": np.array([1], "i4")}
        notes = {"mass": rng.random(nodes, "f4"), "law": rng.random(nodes)}
        trace.steps.append(Step(index, index, **arrays, draft_calls=5, **seconds(), notes=notes))
    trace.save(tmp_path / "large.npz")
    assert (tmp_path / "large.npz").stat().st_size <= 2 * 2**20
    assert_same(load(tmp_path / "large.npz"), trace)


def seconds() -> dict[str, float]:
    return {"draft_seconds": 0.1, "target_seconds": 0.2, "rest_seconds": 0.3}


def test_a_note_that_changes_its_kind_is_refused(tmp_path):
    trace = recorded(NoDraft())
    trace.steps[0].notes["omega"], trace.steps[1].notes["omega"] = np.zeros(2), np.zeros((2, 2))
    with pytest.raises(ValueError, match="`notes` must keep one dtype and number of axes a run, 'omega'"):
        trace.save(tmp_path / "run.npz")


def refused(path) -> str:
    with pytest.raises(ValueError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith("`path` must be ") and message.endswith(".") and "\n" not in message
    return message


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 not really", b"\x93NUMPY", b"\x00" * 4096])
def test_a_file_that_is_no_trace_is_refused(tmp_path, content):
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    assert "is none, missing or truncated" in refused(path)


def test_foreign_arrays_are_refused(tmp_path):
    path = tmp_path / "other.npz"
    np.savez(path, x=np.arange(3))
    refused(path)
    np.save(tmp_path / "other.npy", np.arange(3))
    refused(tmp_path / "other.npy")
    path.write_bytes(pickle.dumps({"header": 1}))
    refused(path)
    np.savez(path, header=np.array([{"format": 1}], dtype=object))
    refused(path)
    for text in (b"[1, 2]", b'"format"', b"{}", b"{"):
        np.savez(path, header=np.frombuffer(text, np.uint8))
        refused(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("header", "no array")
    refused(path)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 0.999])
def test_a_truncated_trace_is_refused(tmp_path, share):
    recorded().save(tmp_path / "run.npz")
    whole = (tmp_path / "run.npz").read_bytes()
    (tmp_path / "part.npz").write_bytes(whole[: int(len(whole) * share)])
    refused(tmp_path / "part.npz")


def test_flipped_bytes_never_surprise(tmp_path):
    """A damaged file loads as it was or is refused."""
    trace = recorded()
    trace.save(tmp_path / "run.npz")
    whole = (tmp_path / "run.npz").read_bytes()
    path = tmp_path / "damaged.npz"
    for at in np.random.default_rng(0).integers(len(whole), size=200):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            found = load(path)
        except ValueError:
            continue
        assert_same(found, trace)


def test_what_is_no_file_is_refused(tmp_path):
    for path in (tmp_path / "nowhere.npz", tmp_path):
        assert refused(path) == f"`path` must be a Draftboard trace (.npz), {path} is none, missing or truncated."


def tampered(tmp_path, change) -> str:
    """The message that meets a trace whose arrays `change` has altered."""
    path = tmp_path / "run.npz"
    recorded().save(path)
    with np.load(path) as arrays:
        arrays = dict(arrays)
    head = json.loads(arrays["header"].tobytes())
    change(arrays, head)
    arrays["header"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
    np.savez(path, **arrays)
    return refused(path)


CONTRADICTIONS = {
    "a foreign format": lambda arrays, head: head.update(format=99),
    "no rows": lambda arrays, head: head.update(rows=0),
    "rows that are words": lambda arrays, head: head.update(rows="two"),
    "a picture of a billion squares": lambda arrays, head: head.update(rows=2**15, cols=2**15, forced=[]),
    "no prompt": lambda arrays, head: head.pop("prompt"),
    "an unknown entry": lambda arrays, head: head.update(extra=1),
    "a number for a prompt": lambda arrays, head: head.update(prompt=3),
    "too many tokens": lambda arrays, head: head.update(cols=1, forced=[]),
    "a lost array": lambda arrays, head: arrays.pop("dice"),
    "a short array": lambda arrays, head: arrays.update(q=arrays["q"][:-1]),
    "another dtype": lambda arrays, head: arrays.update(p=arrays["p"].astype("f8")),
    "another shape": lambda arrays, head: arrays.update(p=arrays["p"][:, None]),
    "a parent behind its child": lambda arrays, head: arrays["parents"].__setitem__(0, 5),
    "a negative token": lambda arrays, head: arrays["committed"].__setitem__(0, -3),
    "a negative size": lambda arrays, head: arrays["nodes"].__setitem__(0, -3),
    "a path outside": lambda arrays, head: arrays.update(path=arrays["path"] + 99),
    "another token on the path": lambda arrays, head: arrays.update(tokens=arrays["tokens"] + 1),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_trace_that_contradicts_itself_is_refused(tmp_path, name):
    assert any(len(step.path) for step in recorded().steps), "nothing was kept, so nothing can contradict"
    tampered(tmp_path, CONTRADICTIONS[name])


def test_a_small_file_that_unpacks_too_large_is_not_read(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.npy", bytes(100 * 2**20))
    refused(path)


def test_every_array_of_a_step_is_saved():
    arrays = {entry.name for entry in fields(Step) if entry.type is np.ndarray}
    assert arrays == set(NODE) | set(ROW) | set(PATHS)
