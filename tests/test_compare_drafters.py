"""Heads compared on equal terms: what each is trained on, what is done is not done again, what a head draws alone."""

import json
import sys

import pytest
import torch
from accelerate import Accelerator
from test_train_drafter import three_layers

from benchmarks import drafters, quality
from pipelines import ARPipeline
from pipelines.models.eagle3 import Eagle3Head
from pipelines.models.scene_classifier import SceneClassifier
from tests import tiny
from training import compare_drafters, scenes
from training.compare_drafters import CONTENDERS, Contender, taught
from training.draft_heads import head_over
from training.draft_quality import BINS
from training.draft_reader import Read, Target
from training.timed_loop import TimedLoop


@pytest.fixture(scope="module")
def parts():
    return tiny.components() | {"transformer": three_layers()}


@pytest.fixture(scope="module")
def folder(parts, tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    ARPipeline(**parts | {"draft_model": None}).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def read(folder) -> Read:
    target, tokens = Target(folder, with_taps=True), torch.randint(tiny.VOCAB, (2, 16))
    found = target.transformer(torch.randn(2, 4, 16), torch.ones(2, 4).bool(), tokens, tap_layers=target.tap_layers)
    return Read(tokens, found.hidden.detach().half(), found.taps.detach().half())


def test_names_tell_the_contenders_apart():
    names = [one.name for one in CONTENDERS]
    assert len(set(names)) == len(names) and {"eagle1-none", "eagle1-x2-none", "eagle3-window"} <= set(names)


def test_a_loop_of_steps_ends_after_them_and_cools_down():
    weight = torch.nn.Parameter(torch.ones(1))
    stepper, rates = torch.optim.SGD([{"params": [weight], "lr": 1.0}]), []
    with TimedLoop(Accelerator(), torch.nn.Linear(1, 1), [stepper], 1e-9, 0.5, steps=200) as loop:
        while loop.goes_on():
            rates.append(stepper.param_groups[0]["lr"])
            loop.step()
    assert len(rates) == 200
    assert max(rates) == 1.0 == rates[100] and rates[-1] == pytest.approx(0.01)


def test_equal_seeds_give_equal_heads_and_more_width_more_weights(folder, read):
    target = Target(folder, with_taps=True)
    heads = [taught(Contender("eagle1"), target, [read] * 3, 3, seed) for seed in (0, 0, 1)]
    same, again, other = (head.fc.weight for head, _ in heads)
    assert torch.equal(same, again) and not torch.equal(same, other)
    wide, facts = taught(Contender("eagle1", "later", 2), target, [read] * 3, 3, 0)
    assert wide.config.width == 2 * target.transformer.config.dim
    assert facts["trained_weights"] > 2 * heads[0][1]["trained_weights"]
    assert facts["flagged"] > 0 == heads[0][1]["flagged"] and set(facts["last"]) == {"features", "logits", "flagged"}


def test_what_is_trained_is_not_trained_again(parts, folder, read, tmp_path, monkeypatch, capsys):
    trained = []
    head_over("eagle1", parts["transformer"], None, None).save_pretrained(folder / "draft_model")

    def noted(contender, *arguments):
        trained.append(contender.name)
        return taught(contender, *arguments)

    class Quality:
        def to_dict(self):
            return {"alpha": [0.5], "accepted_length": 1.5}

    monkeypatch.setattr(compare_drafters, "taught", noted)
    monkeypatch.setattr(compare_drafters, "report", lambda *_: Quality())
    monkeypatch.setattr(compare_drafters.Reader, "fresh", lambda self: read)
    monkeypatch.setattr(compare_drafters, "CONTENDERS", [Contender("eagle1"), Contender("eagle3", "window")])
    line = ["compare", "--model", str(folder), "--tokenizer", str(folder / "vqvae"), "--out", str(tmp_path)]
    for steps, seeds in ((2, 1), (2, 2), (3, 1)):
        monkeypatch.setattr(sys, "argv", [*line, "--steps", str(steps), "--seeds", str(seeds)])
        compare_drafters.main()
    assert trained == ["eagle1-none", "eagle3-window"] * 3, "once a seed and number of steps"
    lines = [json.loads(line) for line in (tmp_path / "heads.jsonl").read_text().splitlines()]
    assert [(one["seed"], one["steps"]) for one in lines[::2]] == [(0, 2), (1, 2), (0, 3)]
    heads = drafters.trained_heads(tmp_path)
    assert [one["steps"] for one in heads["eagle1-none"]] == [3, 2], "the newest of a seed counts"
    assert isinstance(Eagle3Head.from_pretrained(tmp_path / lines[1]["folder"]), Eagle3Head)
    assert drafters.shipped_quality(tmp_path) == Quality().to_dict() | {"entropy_edges": list(BINS)}
    assert drafters.summary(heads["eagle1-none"][1:])["accepted_length"] == drafters.Spread(1.5, 1.5, 1.5)


@pytest.mark.parametrize("kind", ["eagle1", "eagle3"])
def test_a_head_that_knows_the_target_draws_alone_what_the_target_draws(parts, kind, monkeypatch):
    """With the target's law in place of the head's, and every guess kept, dice for dice."""
    pipe = ARPipeline(**parts, settings={})
    head = head_over(kind, parts["transformer"], None, None).eval()
    drawn = drafters.drawn_alone(pipe, kind, head, "a panda", torch.Generator().manual_seed(3), 5)
    never = drafters.drawn_alone(pipe, kind, head, "a panda", torch.Generator().manual_seed(3), drafters.NEVER)
    assert len(drawn) == len(never) == 16 and drawn[:6] == never[:6] and drawn != never
    asked = {"generator": torch.Generator().manual_seed(3), "output_type": "latent"}
    pipe.set_progress_bar_config(disable=True)
    assert drawn[0] == int(pipe("a panda", **asked).images[0, 0, 0]), "the first token is the target's"


def test_a_comparison_tells_of_every_head_and_draws_once(parts, folder, tmp_path, monkeypatch, capsys):
    judge = SceneClassifier(["panda", "none"], ["snow"], widths=(8, 8, 16), features=12)
    judge.save_pretrained(tmp_path / "judge")
    ARPipeline(**parts | {"draft_model": head_over("eagle1", parts["transformer"], None, None)}).save_pretrained(
        tmp_path / "model"
    )
    told = {"alpha": [0.5, 0.25], "accepted_length": 1.5}
    lines = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        head_over("eagle3", parts["transformer"], None, None).save_pretrained(tmp_path / f"head-{seed}")
        facts = {"steps": 2, "batch": 2, "processor_seconds": 3.0 + seed, "trained_weights": 9, "flagged": 0.25}
        own = {"name": "eagle3-later", "kind": "eagle3", "seed": seed, "folder": f"head-{seed}"}
        lines.append(json.dumps(own | facts | {"quality": told | {"accepted_length": 1.5 + seed}}))
    (tmp_path / "heads.jsonl").write_text("\n".join(lines))
    (tmp_path / "shipped.json").write_text(json.dumps(told))
    monkeypatch.setattr(quality, "offered", lambda *_: None)
    monkeypatch.setattr(quality, "tasks", lambda count, seed: [quality.Task(i, "panda", "snow") for i in range(count)])
    line = ["drafters", "--images", "2", "--heads", str(tmp_path), "--model", str(tmp_path / "model")]
    line += ["--judge", str(tmp_path / "judge"), "--out", str(tmp_path / "found.json")]
    monkeypatch.setattr(drafters, "RESULTS", tmp_path)
    monkeypatch.setattr(scenes, "CACHE", tmp_path)
    monkeypatch.setattr(sys, "argv", line)
    drafters.main()
    assert "eagle3-later" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    head = found["heads"]["eagle3-later"]
    assert head["seeds"] == 2 and head["accepted_length"] == {"mean": 2.0, "low": 1.5, "high": 2.5}
    assert head["pictures"] == 4 and head["alpha"] == [0.5, 0.25] and found["shipped"]["quality"] == told
    for one in (head, found["shipped"]):
        assert set(one["alone"]) == set(drafters.HEARD)
        for part in one["alone"].values():
            assert part["place"]["share"] == 1.0 and part["nats"]["low"] <= part["nats"]["mean"] < 0
    assert head["alone"]["never"]["object"]["n"] == 4 and found["ar"]["object"]["n"] == 2
    assert found["ar"]["nats"] > head["alone"]["never"]["nats"]["high"], "an untrained head draws as likely as AR"

    def refused(*_):
        raise AssertionError("drawn again")

    monkeypatch.setattr(drafters, "drawn_alone", refused)
    drafters.main()
    assert json.loads((tmp_path / "found.json").read_text()) == found


def test_a_folder_without_heads_is_refused(tmp_path):
    assert "must be the folder that training.compare_drafters wrote" in tiny.refusal(drafters.trained_heads, tmp_path)


def test_what_the_shipped_head_foretells_is_asked_for(tmp_path):
    assert "must hold shipped.json" in tiny.refusal(drafters.shipped_quality, tmp_path)
