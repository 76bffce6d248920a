"""The mean of a model's features: what it is the mean of, that it stays with its model, that CASCADE uses it."""

import json
import logging
import sys

import pytest
import torch

from pipelines import ARPipeline, CascadePipeline
from pipelines.models.feature_mean import FILE, read_mean, write_mean
from pipelines.models.llamagen_family import LlamaGen
from pipelines.primitives.distributions import Warp
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import EMPTY
from tests import tiny
from training import feature_mean as script


WIDTH = 32
MEAN = torch.linspace(-1, 1, WIDTH)


@pytest.fixture(scope="module")
def components():
    return tiny.components()


@pytest.fixture
def folder(components, tmp_path):
    ARPipeline(**components).save_pretrained(tmp_path / "tiny")
    write_mean(tmp_path / "tiny", MEAN)
    return tmp_path / "tiny"


def test_it_is_the_mean_over_image_rows_of_drawn_pictures(components):
    """Greedy, so that the picture is known: all rows that consumed a token, the prompt's not."""
    family = LlamaGen(**{name: part for name, part in components.items() if name != "draft_model"})
    found = script.feature_mean(family, ["a panda", "a red cat"], 3.0, Warp(temperature=0.0), 0)
    rows = []
    for prompt in ("a panda", "a red cat"):
        session = family.open(family.condition(prompt, None), 3.0, Warp(temperature=0.0), Layout(4, 4))
        token = int(session.score(EMPTY).probs.argmax())
        for _ in range(15):
            session.commit(EMPTY, [], token)
            scores = session.score(EMPTY)
            rows.append(scores.hidden[0, 0])
            token = int(scores.probs.argmax())
    torch.testing.assert_close(found, torch.stack(rows).mean(0), atol=1e-6, rtol=0)


def test_the_command_writes_it_beside_the_weights(folder, monkeypatch, capsys):
    (folder / "method_defaults.json").write_text(json.dumps({"sampling": {"guidance_scale": 3.0, "top_k": 4}}))
    monkeypatch.setattr(script.scenes, "caption", lambda scene, rng: "a panda on snow")
    monkeypatch.setattr(sys, "argv", ["feature_mean", "--model", str(folder), "--pictures", "1"])
    script.main()
    assert "mean of 1 pictures" in capsys.readouterr().out
    found = read_mean(folder, WIDTH)
    assert found.shape == (WIDTH,) and not torch.equal(found, MEAN) and found.isfinite().all()


def test_it_stays_with_its_model(folder, tmp_path):
    ARPipeline.from_pretrained(folder).save_pretrained(tmp_path / "again")
    assert torch.equal(read_mean(tmp_path / "again", WIDTH), MEAN)


def drawn(pipe, caplog) -> tuple[dict, str]:
    pipe.set_progress_bar_config(disable=True)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        logging.getLogger("diffusers").propagate = True
        steps = pipe("a panda", generator=torch.Generator().manual_seed(0), output_type="latent").traces[0].steps
    return next(step.notes for step in steps if "similarity" in step.notes), caplog.text


def test_cascade_compares_states_less_the_mean_and_says_where_there_is_none(folder, components, caplog):
    centred, words = drawn(CascadePipeline.from_pretrained(folder), caplog)
    assert centred["centred"].all() and "raw" not in words
    raw, words = drawn(CascadePipeline(**components), caplog)
    assert not raw["centred"].any() and "training.feature_mean" in words
    assert (raw["similarity"] != centred["similarity"]).any()


def test_a_file_of_something_else_is_refused_with_its_name(folder):
    write_mean(folder, MEAN[:-1])
    assert tiny.refusal(read_mean, folder, WIDTH).startswith(f"`{folder / FILE}` must hold a `mean` of 32 values;")
    (folder / FILE).write_bytes(b"nothing")
    assert "is damaged" in tiny.refusal(CascadePipeline.from_pretrained, folder)
