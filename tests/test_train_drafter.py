"""The training of drafting heads: losses, what the heads read, and a measure that knows a perfect head."""

import argparse
import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import pipelines
from pipelines.models.eagle import EagleHead
from pipelines.models.eagle3 import Eagle3Head
from pipelines.models.llamagen import LlamaGenTransformer
from pipelines.models.llamagen_family import LlamaGen
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.tree import EMPTY
from tests import tiny
from training import publish
from training.draft_heads import HEADS, head_over, saved_head
from training.draft_losses import DECAY, lesson, losses, unrolled_losses
from training.draft_quality import BINS, DEPTH, along_chain, measure, summed
from training.draft_reader import Read
from training.publish import DEFAULTS, drafting_with
from training.train_drafter import optimizers, started


CASES = json.loads((Path(__file__).parent / "vectors" / "drafter.json").read_text())["eagle1_loss"]


def none_of(tokens: torch.Tensor) -> torch.Tensor:
    """No image row is redundant."""
    return torch.zeros_like(tokens[:, 1:], dtype=torch.bool)


class Given(nn.Module):
    """A head that guesses what it is told to, and keeps what it was fed."""

    def __init__(self, guesses: torch.Tensor) -> None:
        super().__init__()
        self.guesses = guesses

    def forward(self, tokens, features):
        self.tokens, self.features = tokens, features
        return self.guesses


@pytest.mark.parametrize("case", CASES)
def test_the_loss_of_worked_cases(case):
    kept = [row for row, weight in enumerate(case["loss_mask"]) if weight]
    true = torch.tensor(case["target_feature"])[kept]
    guessed = torch.tensor(case["pred_feature"])[kept]
    weight = torch.tensor(case["head_weight_VxH"])
    frozen = nn.Linear(weight.shape[1], len(weight), bias=False)
    frozen.weight = nn.Parameter(weight)
    hidden = torch.cat([torch.zeros_like(true[:1]), true])[None]
    tokens = torch.zeros(1, len(kept) + 1, dtype=torch.long)
    of_features, of_logits = losses(Given(guessed[None]), frozen, Read(tokens, hidden), none_of(tokens), 0.0)
    # The worked cases divide by the number of rows + 1e-5.
    assert of_features.item() == pytest.approx(case["vloss"], rel=1e-4)
    assert of_logits.item() == pytest.approx(case["ploss"], rel=1e-4)
    assert (of_features + 0.1 * of_logits).item() == pytest.approx(case["loss_pw0_1"], rel=1e-4)


def test_redundant_rows_count_twice_among_the_logits_only():
    frozen, hidden, guesses = nn.Linear(2, 7), torch.randn(1, 4, 2), torch.randn(1, 3, 2)
    tokens, flagged = torch.zeros(1, 4, dtype=torch.long), torch.tensor([[False, True, False]])
    plain = losses(Given(guesses), frozen, Read(tokens, hidden), none_of(tokens), 0.0)
    weighed = losses(Given(guesses), frozen, Read(tokens, hidden), flagged, 0.0)
    one = losses(Given(guesses[:, 1:2]), frozen, Read(tokens[:, :2], hidden[:, 1:3]), none_of(tokens[:, :2]), 0.0)
    assert weighed[0] == plain[0]
    assert weighed[1].item() == pytest.approx((3 * plain[1].item() + one[1].item()) / 4, rel=1e-5)


def test_every_feature_is_read_with_the_token_after_it():
    text, length, width = 3, 5, 2
    hidden = torch.arange(float((text + 1 + length - 1) * width)).view(1, -1, width)
    head, tokens = Given(torch.zeros(1, text + length - 1, width)), torch.tensor([[4, 5, 6, 3, 2]])
    losses(head, nn.Linear(width, 7), Read(tokens, hidden), none_of(tokens), 0.0)
    assert head.tokens.tolist() == [[0, 0, 0, 4, 5, 6, 3]]
    assert torch.equal(head.features, hidden[:, :-1])
    losses(head, nn.Linear(width, 7), Read(tokens, hidden), none_of(tokens), 1.0)
    assert 0 < (head.features - hidden[:, :-1]).abs().max() <= 0.5, "the noise is not of its width"


class Unrolled(nn.Module):
    """An EAGLE-3 head that says what it is told to, and keeps what it was fed."""

    def __init__(self, logits: list[torch.Tensor]) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, tokens, taps, steps):
        self.tokens, self.taps, self.steps = tokens, taps, steps
        return self.logits


TEXT, LENGTH, CODES = 3, 5, 7


def unrolled_case(steps: int):
    """A picture as read, the target's head, laws [T - 1, V] of all tokens but the first, guesses, and flags."""
    torch.manual_seed(3)
    frozen, rows = nn.Linear(2, CODES, bias=False), TEXT + LENGTH
    read = Read(torch.tensor([[4, 5, 6, 3, 2]]), torch.randn(1, rows, 2), torch.randn(1, rows, 6).half())
    laws = frozen(read.hidden[0, TEXT + 1 :]).softmax(-1).detach()
    logits = [torch.randn(1, rows - 1, CODES) for _ in range(steps)]
    return read, frozen, laws, logits, torch.tensor([[False, True, True, False]])


def by_hand(laws, logits, weights) -> float:
    """Row j of step s foretells token j + s + 1; the mean is over all rows of a step."""
    total = 0.0
    for step, guess in enumerate(logits):
        for row in range(LENGTH - 1 - step):
            law, log_guess = laws[row + step], guess[0, TEXT + row].log_softmax(-1)
            total -= DECAY**step * float(weights[row + step] * (law * log_guess).sum()) / (LENGTH - 1)
    return total


def test_an_unrolled_guess_is_held_against_the_law_of_its_own_position():
    read, frozen, laws, logits, flagged = unrolled_case(3)
    head = Unrolled(logits)
    found = unrolled_losses(head, frozen, read, none_of(read.tokens), 3)
    assert found.item() == pytest.approx(by_hand(laws, logits, [1, 1, 1, 1]), rel=1e-5)
    assert head.tokens.tolist() == [[0, 0, 0, 4, 5, 6, 3]] and head.steps == 3
    assert torch.equal(head.taps, read.taps[:, :-1].float())
    early = torch.cat([laws[:1], laws[:-1]])
    assert found.item() != pytest.approx(by_hand(early, logits, [1, 1, 1, 1]), rel=1e-3), "a row off goes unseen"


def test_redundant_states_count_twice_at_every_unrolled_step():
    read, frozen, laws, logits, flagged = unrolled_case(2)
    found = unrolled_losses(Unrolled(logits), frozen, read, flagged, 2)
    weights = [2 / 3, 4 / 3, 4 / 3, 2 / 3]
    assert found.item() == pytest.approx(by_hand(laws, logits, weights), rel=1e-5)
    still = [by_hand(laws, logits[:1], weights) + by_hand(laws, logits, [1] * 4) - by_hand(laws, logits[:1], [1] * 4)]
    assert found.item() != pytest.approx(still[0], rel=1e-3), "weights of the first step alone go unseen"


@pytest.mark.parametrize("over", [EagleHead.over, Eagle3Head.over], ids=["EAGLE-1", "EAGLE-3"])
@pytest.mark.parametrize("reach", [0, None])
def test_training_brings_the_loss_down(over, reach):
    target = three_layers()
    tokens = torch.randint(tiny.VOCAB, (4, 16), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = torch.randn(1, 4, 16, generator=torch.Generator().manual_seed(1)).expand(4, -1, -1)
        found = target(features, torch.ones(4, 4, dtype=torch.bool), tokens, tap_layers=(0, 1, 2))
    read = Read(tokens, found.hidden.half(), found.taps.half())
    head, frozen = over(target, ffn_dim=32), target.head.requires_grad_(False)
    before = {name: weight.clone() for name, weight in head.named_parameters()}
    steppers, told = optimizers(head, 0.3), []
    for _ in range(40):
        loss, facts = lesson(head, head, frozen, read, reach)
        loss.backward()
        for stepper in steppers:
            stepper.step()
            stepper.zero_grad()
        told.append(loss.item())
    assert told[-1] < 0.9 * told[0]
    assert (facts["flagged"] == 0) == (reach == 0)
    still = {name for name, weight in head.named_parameters() if torch.equal(weight, before[name])}
    assert still == {"token_embedding.weight"} | ({"head.weight"} if over == EagleHead.over else set())


def three_layers() -> LlamaGenTransformer:
    """A tiny target with a layer for each of EAGLE-3's taps."""
    sizes = {**tiny.components(4)["transformer"].config, "num_layers": 3}
    torch.manual_seed(0)
    model = LlamaGenTransformer.from_config(sizes).eval()
    for weight in model.parameters():
        if weight.ndim == 2:
            nn.init.normal_(weight, std=2 * weight.shape[1] ** -0.5)
    return model


class Echo:
    """A run of a head that says what the target itself says."""

    def __init__(self, law) -> None:
        self.law = law

    def step(self, tokens, parents, depth):
        return self.law


def test_a_perfect_head_agrees_and_overlaps_wholly():
    class Session:
        def score(self, draft):
            return type("Scores", (), {"probs": law.expand(1 + len(draft), -1)})

    law = torch.tensor([[0.5, 0.25, 0.25, 0.0]])
    chance = Chance(torch.Generator().manual_seed(0))
    found = summed(along_chain(Echo(law), Session(), law, chance)[None])
    assert found.alpha == found.top1 == [1.0] * DEPTH and found.accepted_length == 1 + DEPTH
    place = sum(1.0397 > edge for edge in BINS)
    assert found.entropy_share[place] == 1.0 and found.alpha_by_entropy[place] == 1.0
    off = summed(along_chain(Echo(law), Session(), torch.tensor([[0.0, 0.0, 0.5, 0.5]]), chance)[None])
    assert off.alpha[0] == 0.25 and off.top1[0] == 0


def test_what_is_never_tried_counts_for_nothing():
    rows = torch.tensor([[1.0, 1.0, 0.5, 0.1], [0.0, 1.0, 1.0, 2.5], [0.0, 0.0, 0.0, 2.5]])
    other = torch.tensor([[1.0, 0.0, 1.0, 0.1], [0.5, 0.0, 0.4, 2.5], [0.2, 0.0, 0.5, 9.0]])
    found = summed(torch.stack([rows, other]))
    assert found.alpha == pytest.approx([0.75, 0.4, 0.5]) and found.top1 == pytest.approx([0.5, 0.0, 0.0])
    assert found.accepted_length == pytest.approx(1 + 0.75 + 0.1 + 0.05)
    assert sum(found.entropy_share) == pytest.approx(1)


@pytest.mark.parametrize("kind", ["eagle1", "eagle3"])
def test_a_head_is_measured_along_pictures_at_guidance(kind):
    components = tiny.components(4) | {"transformer": three_layers()}
    target, pictures = components["transformer"], torch.randint(tiny.VOCAB, (2, 64))
    side = LlamaGenTransformer.from_config({**target.config, "grid_size": 8}).eval()
    side.load_state_dict(target.state_dict())
    head = head_over(kind, side, None, None)
    parts = [head.eval(), side, components["text_encoder"], components["tokenizer"]]
    found = measure(*parts, ["a panda", "a red cat"], pictures, 3.0, Warp(top_k=9))
    assert len(found.alpha) == len(found.top1) == DEPTH and len(found.entropy_share) == len(BINS) + 1
    assert 1 < found.accepted_length < 1 + DEPTH and json.dumps(found.to_dict())
    assert found == measure(*parts, ["a panda", "a red cat"], pictures, 3.0, Warp(top_k=9))
    assert found != measure(*parts, ["a panda", "a red cat"], pictures, 1.0, Warp()), "the sampling goes unheard"


def test_heads_come_back_as_the_kind_they_are(tmp_path):
    target = three_layers()
    for kind, of in HEADS.items():
        head_over(kind, target, None, None).save_pretrained(tmp_path / kind)
        assert type(saved_head(tmp_path / kind)) is of
    target.save_pretrained(tmp_path / "target")
    assert "holds 'LlamaGenTransformer'" in tiny.refusal(saved_head, tmp_path / "target")
    assert "must be the target's, 32, for an eagle3 head" in tiny.refusal(head_over, "eagle3", target, 64, None)


def test_going_on_from_a_head_of_the_other_kind_is_refused(tmp_path):
    head_over("eagle1", three_layers(), None, None).save_pretrained(tmp_path)
    asked = argparse.Namespace(head="eagle3", resume=tmp_path)
    assert tiny.refusal(started, asked, None) == (
        "`--resume` must hold an Eagle3Head, as `--head eagle3` wants, got an EagleHead."
    )
    assert isinstance(started(argparse.Namespace(head="eagle1", resume=tmp_path), None), EagleHead)


def test_a_published_head_says_its_kind_in_the_defaults():
    target = three_layers()
    assert drafting_with(head_over("eagle1", target, None, None)) == DEFAULTS
    told = drafting_with(head_over("eagle3", target, None, None))
    drafting = {name for name in pipelines.METHODS if getattr(pipelines, name).needs_draft_model}
    assert {name for name, group in told.items() if group.get("head") == "eagle3"} == drafting
    for name in drafting:
        settings = getattr(pipelines, name).Settings().revise(told[name], owner=name)
        assert settings.head == "eagle3" and told[name].items() >= DEFAULTS.get(name, {}).items()


def test_features_of_training_are_those_of_decoding():
    """Teacher-forced in one forward, or committed token by token: the head reads the same."""
    components = tiny.components(4)
    transformer, encoder = components["transformer"], components["text_encoder"]
    family = LlamaGen(transformer, None, encoder, components["tokenizer"])
    condition = family.condition("a red cat", None)
    picture = torch.randint(tiny.VOCAB, (1, 16), generator=torch.Generator().manual_seed(0))
    session = family.open(condition, 1.0, Warp(), family.layout(64, 64))
    rows = [session.score(EMPTY).hidden]
    for token in picture[0, :-1].tolist():
        session.commit(EMPTY, [], token)
        rows.append(session.score(EMPTY).hidden)
    with torch.no_grad():
        whole = transformer(condition.features[:1], condition.mask[None], picture).hidden
    known = int(condition.mask.sum())
    torch.testing.assert_close(torch.cat(rows, 1), whole[:, 3:], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(session.prefix_hidden[:, -known:], whole[:, 4 - known : 4], atol=1e-5, rtol=1e-4)


def test_a_head_of_either_kind_is_published_ready_to_draft(tmp_path, monkeypatch, capsys):
    parts = tiny.components() | {"transformer": three_layers(), "draft_model": None}
    pipelines.ARPipeline(**parts).save_pretrained(tmp_path / "model")
    for kind, of in HEADS.items():
        head_over(kind, parts["transformer"], None, None).save_pretrained(tmp_path / kind)
        given = {"tokenizer": "model/vqvae", "model": "model", "drafter": kind, "out": f"out-{kind}"}
        line = [word for name, place in given.items() for word in (f"--{name}", str(tmp_path / place))]
        monkeypatch.setattr(sys, "argv", ["publish", *line])
        publish.main()
        pipe = pipelines.CoolSDPipeline.from_pretrained(tmp_path / f"out-{kind}")
        assert isinstance(pipe.draft_model, of) and pipe.settings.head == kind
        assert sum(1 for _ in pipe.stream("a panda", generator=torch.Generator().manual_seed(0))) <= 16
