"""The recorded race: made by the model that ships, whole, and small."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import pipelines
from benchmarks import traces
from pipelines.primitives.trace import Trace, load
from tests.test_benchmarks import folder, pipe  # noqa: F401  fixtures
from visualize.style import hex_colours


KILOBYTES = 200  # a lane

INDEX = json.loads((traces.TRACES / traces.INDEX).read_text())


def recorded(name: str) -> Trace:
    return load(traces.TRACES / f"{name}.npz")


@pytest.fixture(scope="module")
def shipped() -> pipelines.ARPipeline:
    return pipelines.ARPipeline.from_pretrained(traces.EMBEDDED, dtype=torch.float32)


def test_what_is_listed_is_there_and_nothing_else():
    files = {path.name for path in traces.TRACES.iterdir()}
    assert files == {traces.INDEX} | {f"{name}{end}" for name in traces.METHODS for end in (".npz", ".png")}
    assert INDEX["lanes"] == traces.METHODS
    assert sum(path.stat().st_size for path in traces.TRACES.iterdir()) < 1000 * KILOBYTES * len(traces.METHODS)


@pytest.mark.parametrize("name", traces.METHODS)
def test_a_recording_is_of_the_shipped_model(name: str, shipped: pipelines.ARPipeline):
    trace = recorded(name)
    assert trace.header.weights_sha256 == shipped.weights_sha256, "other weights ship now; run: make traces"
    assert trace.complete and trace.layout == shipped.layout()
    assert trace.tokens.max() < shipped.vocabulary, "a token that the model does not have"
    method = getattr(pipelines, trace.header.method)(**shipped.components)
    defaults = method.sampling.to_dict() | method.settings.to_dict()
    assert trace.header.settings == defaults, "defaults have changed; run: make traces"


def test_all_lanes_have_one_prompt_and_one_seed():
    headers = [recorded(name).header for name in traces.METHODS]
    assert len({(header.prompt, header.seed, header.threads, header.device) for header in headers}) == 1


@pytest.mark.parametrize("name", traces.METHODS)
def test_the_kept_picture_is_the_recordings(name: str, shipped: pipelines.ARPipeline):
    kept = Image.open(traces.TRACES / f"{name}.png")
    assert json.loads(kept.text["seed"]) == recorded(name).header.seed
    difference = np.asarray(kept).astype(int) - np.asarray(traces.drawn(shipped, recorded(name)))
    assert abs(difference).max() <= 1  # another machine may round the other way


def test_the_kept_palette_is_the_models(shipped: pipelines.ARPipeline):
    kept = np.frombuffer(bytes.fromhex(INDEX["palette"]), np.uint8).reshape(-1, 3)
    assert hex_colours(kept) == INDEX["palette"]
    assert len(kept) == shipped.vocabulary
    assert abs(kept.astype(int) - traces.previews(shipped.model)[0]).max() <= 1


def test_recording_writes_what_the_page_reads(folder: Path, tmp_path: Path):  # noqa: F811
    names = traces.checked_methods(traces.METHODS)
    traces.record(folder, names, "a panda on snow", 3, tmp_path)
    assert json.loads((tmp_path / traces.INDEX).read_text())["lanes"] == traces.METHODS
    for name, method in names.items():
        trace = load(tmp_path / f"{name}.npz")
        assert (trace.header.method, trace.header.seed, trace.header.dtype) == (method, 3, "float32")
        assert trace.complete
        assert json.loads(Image.open(io.BytesIO((tmp_path / f"{name}.png").read_bytes())).text["settings"])
