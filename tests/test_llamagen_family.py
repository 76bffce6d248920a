"""LlamaGen as an image model: prompts, unknown words, layouts, both image tokenizers, and what every session owes."""

from functools import partial

import pytest
import torch
from conftest import check_session
from test_llamagen import make_tiny
from transformers import JanusVQVAE, JanusVQVAEConfig

from pipelines.models.llamagen_family import LlamaGen, native_dtype
from pipelines.primitives.distributions import Warp
from pipelines.primitives.layout import Layout
from tests import tiny


def family(**changes) -> LlamaGen:
    parts = {name: part for name, part in tiny.components().items() if name != "draft_model"}
    return LlamaGen(**(parts | changes))


def janus(grid_size: int = 4) -> JanusVQVAE:
    torch.manual_seed(0)
    sizes = dict(num_embeddings=32, base_channels=32, channel_multiplier=[1, 2], num_res_blocks=1, latent_channels=32)
    return JanusVQVAE(JanusVQVAEConfig(**sizes, num_patches=grid_size))


@torch.no_grad()
def test_text_stands_on_the_right_as_llamagen_turns_it():
    model = family()
    condition = model.condition("red panda", None)
    assert condition.mask.tolist() == [False, False, True, True]
    # LlamaGen pads on the right, encodes with the mask, then rolls the features to the left and blanks the rest.
    coded = model.tokenizer("red panda", padding="max_length", max_length=4, return_tensors="pt")
    features = model.text_encoder(coded.input_ids, attention_mask=coded.attention_mask).last_hidden_state[0]
    expected = features.roll(2, 0) * condition.mask[:, None]
    torch.testing.assert_close(condition.features[0], expected, rtol=0, atol=1e-6)
    assert torch.equal(condition.features[1], model.transformer.condition.uncond_embedding)
    assert condition.unknown == {} and condition.negative_mask is None


def test_negative_prompts_take_the_unconditional_row_with_a_mask_of_their_own():
    model = family()
    condition = model.condition("panda", "a red cat on grass")
    assert torch.equal(condition.features[1], model.condition("red cat grass", None).features[0])
    assert condition.mask.tolist() == [False, False, False, True]
    assert condition.negative_mask.tolist() == [False, True, True, True]


def test_unknown_words_are_named_with_the_nearest_and_left_out():
    model = family()
    found = model.condition("a red Pandda on a xylophone", None)
    assert found.unknown == {"pandda": ["panda"], "xylophone": []}
    assert torch.equal(found.features, model.condition("red", None).features)
    assert model.condition("a panda", "a red zeppelin").unknown == {"zeppelin": []}


@pytest.mark.parametrize(
    ("prompt", "negative", "complaint"),
    [
        ("", None, "`prompt` must say what to draw"),
        (" \n", None, "`prompt` must say what to draw"),
        ("xylophone", None, "`prompt` must name something this model knows, got 'xylophone'."),
        (
            "a pandda",
            None,
            "`prompt` must name something this model knows, got 'a pandda'; near to that it knows panda.",
        ),
        ("a on", None, "`prompt` must name something this model knows, got 'a on'."),
        ("panda", "", "`negative_prompt` must say"),
        ("panda", "xylophone", "`negative_prompt` must name"),
    ],
)
def test_prompts_that_say_nothing_are_refused(prompt: str, negative: str | None, complaint: str):
    assert tiny.refusal(family().condition, prompt, negative).startswith(complaint)


def test_a_prompt_of_more_words_than_the_model_reads_is_refused():
    message = tiny.refusal(family().condition, "red panda snow grass blue cat", None)
    assert message == "`prompt` must have at most 4 words that this model knows, got 6."


def test_only_the_models_own_size_is_drawn():
    model = family()
    assert model.layout(32, 32) == Layout(4, 4)
    assert tiny.refusal(model.layout, 32, 40) == "`width` must be 32 pixels, the one size this model draws, got 40."
    assert tiny.refusal(model.layout, 16, 32).startswith("`height` must be 32 pixels")


def test_the_patch_is_that_of_the_tokenizer():
    assert (family().patch_size, family(vqvae=janus()).patch_size, family(vqvae=None).patch_size) == (8, 2, 16)


@torch.no_grad()
def test_both_tokenizers_decode_and_show_their_codes():
    tokens = torch.randint(32, (2, 4, 4))
    own = family()
    assert torch.equal(own.decode(tokens), own.codes(tokens)) and torch.equal(own.codebook(), own.codes.codes)
    vqvae = janus()
    other = family(vqvae=vqvae)
    torch.testing.assert_close(other.decode(tokens), vqvae.decode(tokens.flatten(1)).clamp(-1, 1), rtol=0, atol=1e-5)
    assert torch.equal(other.codebook(), vqvae.quantize.embedding.weight)
    assert other.decode(tokens[:, :1, :2]).shape == (2, 3, 2, 4), "pieces of a picture decode too"
    assert torch.equal(own.token_embedding(), own.transformer.token_embedding.weight)


def test_missing_components_are_named():
    bare = LlamaGen(make_tiny(), None, None, None)
    assert "`text_encoder` and `tokenizer` must be loaded" in tiny.refusal(bare.condition, "panda", None)
    assert "`vqvae` must be loaded" in tiny.refusal(bare.decode, torch.zeros(1, 4, 4).long())
    assert "`vqvae` must be loaded" in tiny.refusal(bare.codebook)


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("warp", [Warp(), Warp(temperature=0.8, top_k=9, top_p=0.9)])
def test_a_session_keeps_its_promises(scale: float, warp: Warp):
    model = family(transformer=make_tiny(num_layers=8, cls_token_num=4, caption_dim=16), vqvae=None)
    condition = model.condition("red panda", None)
    check_session(partial(model.open, condition, scale, warp, model.layout(64, 64)), 1e-5)


@pytest.mark.parametrize(("has_tiles", "dtype"), [(False, torch.float32), (True, torch.bfloat16)])
def test_a_cpu_runs_bfloat16_only_where_it_has_tiles_for_it(monkeypatch, has_tiles: bool, dtype: torch.dtype):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: has_tiles)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    assert native_dtype(torch.ones(1).device) == dtype
