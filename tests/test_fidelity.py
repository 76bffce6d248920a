"""What faster methods cost in their pictures: distances with known values, counts of known traces, a run cut short."""

import argparse
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import fidelity, quality, shape
from benchmarks.fidelity import Difference, Drawn
from benchmarks.quality import Task
from benchmarks.run import Entrant
from pipelines import ARPipeline, CoolSDPipeline
from pipelines.models.scene_classifier import SceneClassifier
from tests.tiny import components


def dealt(pipe: ARPipeline, seed: int = 3):
    return pipe("a red cat", generator=torch.Generator().manual_seed(seed), output_type="latent")


def test_the_frechet_distance_of_normal_laws_is_the_known_one():
    rng = np.random.default_rng(0)
    one = rng.standard_normal((4000, 3))
    assert fidelity.frechet(one, one) == pytest.approx(0, abs=1e-9)
    assert fidelity.frechet(one, one + [3, 0, 4]) == pytest.approx(25)
    # Diagonal spreads: sum of (s - t)^2, here of the sample's own.
    spread = one.std(0, ddof=1)
    white = (one - one.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(one.T)).T)
    assert fidelity.frechet(white, 3 * white) == pytest.approx(3 * (3 - 1) ** 2) and spread.shape == (3,)


def test_a_difference_is_taken_pair_by_pair():
    base = np.random.default_rng(1).random(400) * 100
    found = fidelity.difference(base + 1, base)
    assert (found.mean, found.low, found.high) == pytest.approx((1, 1, 1)), "pairing takes out what pictures share"
    noisy = fidelity.difference(base + np.random.default_rng(2).normal(1, 2, 400), base)
    assert noisy.low < 1 < noisy.high and noisy.high - noisy.low == pytest.approx(4 * 1.96 / 20, rel=0.15)


def test_infidelity_is_what_chances_exceed_the_exact_rule_by():
    step = SimpleNamespace(
        p=np.array([0.2, 0.5, 0.1], np.float32),
        q=np.array([0.4, 0.5, 0.1], np.float32),
        accept_prob=np.array([0.75, 1.0, np.nan]),
    )
    trace = SimpleNamespace(steps=[step], tokens=np.zeros(5))
    assert fidelity.infidelity(trace) == pytest.approx(0.25 / 5)


def test_exact_methods_have_no_infidelity_and_looser_ones_more():
    model = components()
    exact, loose = (
        dealt(CoolSDPipeline(**model, settings={"delta": delta, "nu": 0.0})).traces[0] for delta in (1.0, 3.0)
    )
    assert fidelity.infidelity(exact) < 1e-6 < 0.01 < fidelity.infidelity(loose)


def test_the_likelihood_is_that_of_the_law_that_drew():
    """At default sampling without filters the mean log probability is that of each step's own law."""
    pipe = ARPipeline(**components())
    drawn = dealt(pipe)
    tokens, steps = drawn.images[0].flatten().tolist(), drawn.traces[0].steps
    own = [
        float(step.top_probs[0][list(step.top_tokens[0]).index(token)])
        for step, token in zip(steps, tokens)
        if token in step.top_tokens[0]
    ]
    laws = fidelity.figures.forced_laws(pipe, "a red cat", tokens)
    forced = laws[range(len(tokens)), tokens]
    seen = [float(forced[at]) for at, step in enumerate(steps) if tokens[at] in step.top_tokens[0]]
    assert len(own) > 8 and seen == pytest.approx(own, rel=1e-4)
    assert fidelity.log_likelihood(pipe, "a red cat", tokens) == pytest.approx(float(forced.log().mean()), rel=1e-5)


def test_a_run_that_was_cut_short_goes_on(tmp_path: Path):
    pipe, keep = CoolSDPipeline(**components()), tmp_path / "kept.jsonl"
    asked = [Task(index, "cat", "snow") for index in range(3)]
    first = fidelity.draw(pipe, asked[:2], keep, 0, "cool")
    keep.write_text(keep.read_text().splitlines()[0] + "\n" + keep.read_text().splitlines()[1] + "\n")
    passes = []
    hook = pipe.transformer.register_forward_hook(lambda *_: passes.append(1))
    again = fidelity.draw(pipe, asked, keep, 0, "cool")
    hook.remove()
    assert again[:2] == first and len(keep.read_text().splitlines()) == 3
    assert len(passes) == again[2].nfe + 3, "only the missing picture is drawn: a warm-up, its passes, two to read it"


def test_other_settings_and_seeds_keep_other_files():
    model = components()
    pipes = [CoolSDPipeline(**model), CoolSDPipeline(**model, settings={"delta": 2.0}), ARPipeline(**model)]
    assert len({fidelity.file_of(pipe, seed) for pipe in pipes for seed in (0, 1)}) == 6


def test_a_point_compares_with_the_reference(tmp_path: Path):
    torch.manual_seed(0)
    pipe, asked = ARPipeline(**components()), [Task(index, "cat", "snow") for index in range(4)]
    judge = SceneClassifier(["cat", "dog"], ["snow", "grass"], widths=(8, 8, 16), features=3).eval()
    drawn = fidelity.draw(pipe, asked, tmp_path / "kept.jsonl", 0, "ar")
    tokenizer = pipe.vqvae.eval()
    one = fidelity.read(drawn, asked, tokenizer, judge)
    found = fidelity.point(Entrant("ARPipeline", {}), one, one)
    assert found.fidelity_change == Difference(0, 0, 0) and found.frechet == pytest.approx(0, abs=1e-9)
    assert found.nfe == 16 and found.object.n == 4
    assert found.fidelity.share == pytest.approx((found.object.share + found.place.share) / 2)


def test_the_report_names_every_method_and_the_floor(tmp_path: Path):
    share = quality.figures.wilson(3, 4)
    change = Difference(-0.015, -0.03, 0.001)
    point = fidelity.Point("SJDPipeline", {}, 100.0, 2.5, 0.02, share, share, share, change, -2.0, change, 0.25)
    said = fidelity.report({"methods": {"sjd": point}, "again": point})
    assert "-1.5 (-3.0 to +0.1)" in said and "ar, other seeds" in said and said.count("75.0%") == 2


def test_every_draft_is_a_shape_of_the_method():
    found = shape.shapes("cool-sd:delta=2")
    assert len(found) == len(set(found)) and all(one.startswith("cool-sd:delta=2:draft=") for one in found)
    kinds = {one.split("draft=")[1].split(":")[0] for one in found}
    assert kinds == {"chain", "static", "dynamic"} and len(shape.entrants(found)) == len(found) + 1


def test_the_best_draft_is_the_fastest_by_its_median():
    raced = {
        name: SimpleNamespace(speedup=SimpleNamespace(median=m)) for name, m in [("ar", 9.0), ("a", 1.0), ("b", 1.2)]
    }
    assert shape.best(SimpleNamespace(methods=raced)) == "b"


def test_kept_pictures_come_back_as_they_were(tmp_path: Path):
    one = Drawn(3, [[1, 2], [3, 4]], 3, 1.5, 0.1, -2.0)
    path = tmp_path / "kept.jsonl"
    path.write_text(json.dumps(vars(one)) + "\n")
    assert fidelity.kept_in(path) == {3: one} and fidelity.kept_in(tmp_path / "none") == {}


def test_the_options_are_checked_before_the_work(tmp_path: Path):
    options = argparse.Namespace(
        images=1, seed=0, model=tmp_path, judge=tmp_path, keep=tmp_path, out=tmp_path, sheet=None
    )
    with pytest.raises(ValueError, match="`--images` must be at least 2, got 1"):
        quality.check(options)
