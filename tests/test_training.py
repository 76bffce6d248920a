"""What training rests on: scenes on the token grid, words that all captions use, losses that do not bend the law."""

import itertools

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from pipelines.models.llamagen import LlamaGenTransformer
from tests import tiny
from training import scenes, words
from training.muon import orthogonal
from training.timed_loop import TimedLoop
from training.train_transformer import (
    BEGIN_WEIGHT,
    TOP_TOKENS,
    TOP_WEIGHT,
    Batch,
    encode_captions,
    fixed_sets,
    grown,
    hint_loss,
    picture_loss,
    token_losses,
)


def test_sprites_stand_on_the_token_grid_inside_the_picture():
    for offset in (*scenes.TOPS, *scenes.LEFTS):
        assert offset % scenes.GRID == 0 and 0 <= offset <= scenes.SIDE - scenes.SIZE


@pytest.mark.parametrize("place", scenes.PLACE_NAMES)
def test_a_place_is_cut_from_its_field_at_the_token_grid(place):
    field = scenes.field(place)
    assert field.shape == (scenes.FIELD, scenes.FIELD, 3)
    scene = scenes.draw(None, place, np.random.default_rng(0))
    assert scene.pixels.shape == (scenes.SIDE, scenes.SIDE, 3) and not scene.opaque.any()
    assert scene.pixels.std() > 1, "the place has no texture"


def test_six_in_a_hundred_pairs_are_held_out_and_every_object_and_place_is_seen():
    held = np.array(
        [[scenes.is_held_out(name, place) for place in scenes.PLACE_NAMES] for name in scenes.OBJECT_NAMES]
    )
    assert 0.05 < held.mean() < 0.07
    assert not held.all(0).any() and not held.all(1).any()


def test_every_word_of_a_caption_is_known():
    tokenizer = words.tokenizer(8)
    for name in scenes.OBJECT_NAMES:
        for place in scenes.PLACES.values():
            ids = tokenizer(f"a {name} {place}").input_ids
            assert tokenizer.unk_token_id not in ids and 2 <= len(ids) <= 8


@pytest.mark.parametrize(
    ("prompt", "known"),
    [
        ("A Panda, on the SNOW!", "panda snow"),
        ("the panda's forest", "panda forest"),
        ("a puppy on a beach", "dog sand"),
        ("a spaceship in the dark", "rocket night"),
        ("a red car by a brick wall", "red car brick wall"),
    ],
)
def test_prompts_are_read_as_people_write_them(prompt, known):
    assert words.normalize(prompt) == known


def test_synonyms_lead_to_words_of_the_vocabulary_and_hide_none():
    vocabulary = set(words.vocabulary())
    for name, others in words.SYNONYMS.items():
        assert name in vocabulary and not vocabulary & set(others.split()), name


def test_captions_are_turned_to_the_left():
    ids, mask = encode_captions(words.tokenizer(8), ["a panda in the snow", "a ghost"])
    assert mask.sum(1).tolist() == [2, 1] and mask[:, -1].all()
    assert (ids[~mask] == 0).all() and (ids[mask] > 1).all()


def test_orthogonal_brings_singular_values_near_one():
    for shape in ((24, 8), (8, 24)):
        matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        values = torch.linalg.svdvals(orthogonal(matrix))
        assert values.min() > 0.5 and values.max() < 1.3


def example(opaque: list[int]) -> Batch:
    """One picture of 100 tokens, a text of three rows of which the second names the object."""
    covered = torch.zeros(1, 100, dtype=torch.bool)
    covered[0, opaque] = True
    named, mask = torch.tensor([[False, True, False]]), torch.tensor([[False, True, True]])
    tokens = torch.arange(100)[None] % 7
    return Batch(torch.tensor([[0, 5, 6]]), named, mask, tokens, covered, covered)


def test_what_tokens_weigh_follows_from_the_tokens_before():
    logits = torch.randn(1, 100, 7, generator=torch.Generator().manual_seed(1))
    batch = example([40, 41, 60])
    weight = torch.ones(100)
    weight[32:41] = BEGIN_WEIGHT  # the first token of the object like those before it: else it would begin too early
    weight[41 : 40 + TOP_TOKENS] = TOP_WEIGHT
    assert picture_loss(logits, batch).item() == pytest.approx(
        ((token_losses(logits, batch)[0] * weight).sum() / weight.sum()).item(), rel=1e-5
    )


def test_the_hint_is_the_share_of_the_objects_tokens():
    batch = example([0, 1, 7])  # tokens 0, 1 and 0 again
    logits = torch.zeros(1, 2, 7)
    logits[0, 1] = torch.tensor([2 / 3, 1 / 3, *[1e-9] * 5]).log()
    best = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3))
    assert hint_loss(logits, batch, torch.tensor([False])).item() == pytest.approx(best, abs=1e-5)
    assert hint_loss(logits, batch, torch.tensor([True])).item() == 0, "a dropped caption names nothing"


@pytest.mark.parametrize("size", [16, 64])
def test_a_step_may_hold_more_pictures_than_the_sets_to_evaluate_on(monkeypatch, size):
    monkeypatch.setattr(scenes, "sample", lambda rng, held_out: scenes.draw(None, "red", rng))
    sets = fixed_sets(tiny.components()["vqvae"], words.tokenizer(8), size)
    assert list(sets) == ["seen", "held-out"] and all(sets.values()), "a set is empty"
    assert {len(batch.tokens) for batches in sets.values() for batch in batches} == {size}


def test_a_grown_transformer_says_what_it_said_before(tmp_path):
    old = tiny.transformer(4)
    old.save_pretrained(tmp_path)
    features, mask = torch.randn(1, 4, 16), torch.ones(1, 4, dtype=torch.bool)
    tokens = torch.randint(tiny.VOCAB, (1, 16))
    new = grown(tmp_path, 5)
    assert isinstance(new, LlamaGenTransformer) and new.config.num_layers == 5
    torch.testing.assert_close(new(features, mask, tokens).logits, old(features, mask, tokens).logits)
    assert "at least 2" in tiny.refusal(grown, tmp_path, 1)


def test_the_timed_loop_warms_up_cools_to_nothing_and_saves_at_the_end(monkeypatch: pytest.MonkeyPatch):
    clock = itertools.count()
    monkeypatch.setattr("training.timed_loop.time.monotonic", lambda: next(clock) / 10)
    weight = torch.nn.Parameter(torch.ones(1))
    stepper = torch.optim.SGD([{"params": [weight], "lr": 0.6}])
    rates, saved = [], []
    with TimedLoop(Accelerator(), torch.nn.Linear(1, 1), [stepper], minutes=0.1, decay_from=0.5) as loop:
        while loop.goes_on():
            rates.append(stepper.param_groups[0]["lr"])
            weight.sum().backward()
            loop.step()
            saved.append(loop.saves())
    assert rates[:3] == pytest.approx([0.01, 0.02, 0.03]) and max(rates) == pytest.approx(0.6)
    assert rates[-1] < 0.1 and loop.done >= 1
    assert saved.index(True) == len(saved) - 1, "the last weights, and no others in so short a time"
    assert weight.item() == pytest.approx(1 - sum(rates), rel=1e-4) and weight.grad is None
