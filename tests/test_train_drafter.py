"""The training of a drafting head: the loss, what the head reads, and a measure that knows a perfect head."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from pipelines.models.eagle import EagleHead
from pipelines.models.llamagen_family import LlamaGen
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.tree import EMPTY
from tests import tiny
from training.draft_quality import BINS, DEPTH, along_chain, measure, summed
from training.train_drafter import Read, losses


CASES = json.loads((Path(__file__).parent / "vectors" / "drafter.json").read_text())["eagle1_loss"]


def read_as(tokens: torch.Tensor, hidden: torch.Tensor) -> Read:
    """Pictures in which no state comes again."""
    return Read(tokens, hidden, torch.zeros_like(tokens[:, 1:], dtype=torch.bool))


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
    read = read_as(torch.zeros(1, len(kept) + 1, dtype=torch.long), hidden)
    of_features, of_logits = losses(Given(guessed[None]), frozen, read, 0, 0.0)
    # The worked cases divide by the number of rows + 1e-5.
    assert of_features.item() == pytest.approx(case["vloss"], rel=1e-4)
    assert of_logits.item() == pytest.approx(case["ploss"], rel=1e-4)
    assert (of_features + 0.1 * of_logits).item() == pytest.approx(case["loss_pw0_1"], rel=1e-4)


def test_redundant_rows_count_twice_among_the_logits_only():
    frozen, hidden, guesses = nn.Linear(2, 7), torch.randn(1, 4, 2), torch.randn(1, 3, 2)
    tokens, flagged = torch.zeros(1, 4, dtype=torch.long), torch.tensor([[False, True, False]])
    plain = losses(Given(guesses), frozen, read_as(tokens, hidden), 0, 0.0)
    weighed = losses(Given(guesses), frozen, Read(tokens, hidden, flagged), 0, 0.0)
    one = losses(Given(guesses[:, 1:2]), frozen, read_as(tokens[:, :2], hidden[:, 1:3]), 0, 0.0)
    assert weighed[0] == plain[0]
    assert weighed[1].item() == pytest.approx((3 * plain[1].item() + one[1].item()) / 4, rel=1e-5)


def test_every_feature_is_read_with_the_token_after_it():
    text, length, width = 3, 5, 2
    hidden = torch.arange(float((text + 1 + length - 1) * width)).view(1, -1, width)
    head = Given(torch.zeros(1, text + length - 1, width))
    losses(head, nn.Linear(width, 7), read_as(torch.tensor([[4, 5, 6, 3, 2]]), hidden), text, 0.0)
    assert head.tokens.tolist() == [[0, 0, 0, 4, 5, 6, 3]]
    assert torch.equal(head.features, hidden[:, :-1])
    losses(head, nn.Linear(width, 7), read_as(torch.tensor([[4, 5, 6, 3, 2]]), hidden), text, 1.0)
    assert 0 < (head.features - hidden[:, :-1]).abs().max() <= 0.5, "the noise is not of its width"


def test_training_brings_the_loss_down():
    components = tiny.components(4)
    target, head = components["transformer"], EagleHead.over(components["transformer"], ffn_dim=32)
    tokens = torch.randint(tiny.VOCAB, (4, 16), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = torch.randn(1, 4, 16, generator=torch.Generator().manual_seed(1)).expand(4, -1, -1)
        hidden = target(features, torch.ones(4, 4, dtype=torch.bool), tokens).hidden
    stepper = torch.optim.AdamW([weight for weight in head.parameters() if weight.requires_grad], lr=3e-3)
    found = []
    for _ in range(60):
        loss = sum(losses(head, head.head, read_as(tokens, hidden.half()), head.text_rows, 0.0))
        loss.backward()
        stepper.step()
        stepper.zero_grad()
        found.append(loss.item())
    assert found[-1] < found[0] - 0.5


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


def test_a_head_is_measured_along_pictures_at_guidance():
    components = tiny.components(8)
    parts = [components[name] for name in ("draft_model", "transformer", "text_encoder", "tokenizer")]
    pictures = torch.randint(tiny.VOCAB, (2, 64), generator=torch.Generator().manual_seed(0))
    found = measure(*parts, ["a panda", "a red cat"], pictures)
    assert len(found.alpha) == len(found.top1) == DEPTH and len(found.entropy_share) == len(BINS) + 1
    assert 1 < found.accepted_length < 1 + DEPTH and json.dumps(found.to_dict())
    assert found == measure(*parts, ["a panda", "a red cat"], pictures)


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
