"""What a person takes along: a picture that tells how it was made, and code that makes its tokens again."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import pipelines
from benchmarks.run import EMBEDDED
from pipelines.base import ARImagePipeline
from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import Trace
from tests.rounds import HEADER, a_round
from tests.tiny import components, refusal
from visualize import export


TRACE = Trace(HEADER, Layout(1, 2), [a_round(0, 0, committed=[3]), a_round(1, 1, committed=[300])])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    pipelines.ARPipeline(**components()).save_pretrained(path)
    return path


def defaults(pipe: ARImagePipeline) -> dict[str, object]:
    return pipe.sampling.to_dict() | pipe.settings.to_dict()


def drawn(method: str, folder: Path, rounds: int | None = None, **settings: object) -> tuple[Trace, str]:
    """A run by a method of a saved model, up to some round, and the code that makes it again."""
    pipe = getattr(pipelines, method).from_pretrained(folder, dtype=torch.float32)
    stream = pipe.stream("a panda on snow", generator=torch.Generator().manual_seed(5), **settings)
    for step in stream:
        if step.index + 1 == rounds:
            break
    return stream.trace, export.code(stream.trace, str(folder), defaults(pipe))


def run(code: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, object]:
    """The names that the code leaves, run in a folder of its own; the number of threads stays as it was."""
    monkeypatch.chdir(folder)
    threads = torch.get_num_threads()
    names: dict[str, object] = {}
    try:
        exec(code, names)
    finally:
        torch.set_num_threads(threads)
    return names


def test_a_picture_tells_how_it_was_made():
    picture = Image.new("RGB", (4, 4), (1, 2, 3))
    saved = Image.open(io.BytesIO(export.picture_png(picture, TRACE)))
    assert saved.tobytes() == picture.tobytes()
    assert saved.text["prompt"] == HEADER.prompt and saved.text["method"] == "ARPipeline"
    assert json.loads(saved.text["seed"]) == HEADER.seed
    assert json.loads(saved.text["settings"]) == HEADER.settings
    assert "negative_prompt" not in saved.text


def test_the_hash_is_of_int32_tokens_in_their_order():
    assert export.tokens_sha256(np.array([3, 300])) == export.tokens_sha256(TRACE.tokens)
    assert export.tokens_sha256(np.array([300, 3])) != export.tokens_sha256(TRACE.tokens)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("ARPipeline", {}),
        ("SJDPipeline", {}),
        ("ARPipeline", {"temperature": 0.7, "guidance_scale": 2.0, "negative_prompt": "a “red”\ncat"}),
        ("SJDPipeline", {"window": 4, "start": "sample_left", "top_k": 9}),
    ],
)
def test_the_code_makes_the_tokens_again(method: str, settings: dict, folder: Path, tmp_path: Path, monkeypatch):
    trace, code = drawn(method, folder, **settings)
    names = run(code, monkeypatch, tmp_path)
    assert names["tokens"].tolist() == trace.tokens.tolist()
    assert (tmp_path / "picture.png").exists()
    assert len([line for line in code.splitlines() if line]) == 12
    assert all(f"{name}=" in code for name in settings)
    assert "top_p=" not in code, "a setting left at its default is written out"


def test_the_code_makes_a_stopped_run_as_far_as_it_came(folder: Path, tmp_path: Path, monkeypatch):
    trace, code = drawn("SJDPipeline", folder, rounds=3)
    assert not trace.complete
    assert run(code, monkeypatch, tmp_path)["tokens"].tolist() == trace.tokens.tolist()


@pytest.mark.parametrize("method", ["ARPipeline", "SJDPipeline"])
def test_the_code_of_the_embedded_model_runs(method: str, tmp_path: Path, monkeypatch):
    trace, code = drawn(method, EMBEDDED)
    assert run(code, monkeypatch, tmp_path)["tokens"].tolist() == trace.tokens.tolist()


def test_other_tokens_or_other_weights_are_noticed(folder: Path, tmp_path: Path, monkeypatch):
    trace, code = drawn("ARPipeline", folder)
    with pytest.raises(AssertionError, match="other tokens"):
        run(code.replace("manual_seed(5)", "manual_seed(6)"), monkeypatch, tmp_path)
    with pytest.raises(AssertionError, match="other weights"):
        run(code.replace(trace.header.weights_sha256, "0" * 64), monkeypatch, tmp_path)


def test_a_run_without_a_seed_has_no_code():
    message = refusal(export.code, Trace(replace(HEADER, seed=None), TRACE.layout, TRACE.steps), ".", HEADER.settings)
    assert "seed" in message
