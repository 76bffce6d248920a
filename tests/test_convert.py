"""Checkpoints written in the released layouts, at tiny sizes, become ours and compute the same."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from test_llamagen import ATOL, TINY, make_tiny, naive_rows, random_masks, released_weights
from torch import Tensor
from transformers import JanusVQVAE, JanusVQVAEConfig

from pipelines import ARPipeline
from pipelines.models.convert import convert_transformer, convert_vqvae, main
from pipelines.models.llamagen import LlamaGenTransformer
from tests import tiny


HEADS, GRID = TINY["num_heads"], TINY["grid_size"]


def lantern_weights(released: dict[str, Tensor]) -> dict[str, Tensor]:
    """The layout of LANTERN's copies: transformers' names, queries, keys and values apart."""
    renames = {
        "tok_embeddings": "model.embed_tokens",
        "cls_embedding": "model.cls_embedding",
        "output": "lm_head",
        "attention.wo": "self_attn.o_proj",
        "feed_forward.w1": "mlp.gate_proj",
        "feed_forward.w2": "mlp.down_proj",
        "feed_forward.w3": "mlp.up_proj",
        "attention_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    }
    weights = {}
    for name, weight in released.items():
        if name.startswith(("layers.", "norm.")):
            name = f"model.{name}"
        if "attention.wqkv" in name:
            for letter, part in zip("qkv", weight.chunk(3)):
                weights[name.replace("attention.wqkv", f"self_attn.{letter}_proj")] = part.clone()
            continue
        for old, new in renames.items():
            if f"{old}." in name:
                name = name.replace(f"{old}.", f"{new}.")
                break
        weights[name] = weight
    return weights


def write_released(folder: Path, wrapper: str = "model") -> tuple[Path, dict[str, Tensor]]:
    released = released_weights(make_tiny(seed=7))
    path = folder / "t2i.pt"
    training = {"optimizer": {"step": 3}, "steps": 9, "args": argparse.Namespace(lr=1e-4)}
    torch.save({wrapper: released} | training, path)
    return path, released


def write_lantern(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    released = released_weights(make_tiny(seed=8))
    folder.mkdir()
    weights = lantern_weights(released)
    names = sorted(weights)
    save_file({name: weights[name] for name in names[:20]}, folder / "model-00001-of-00002.safetensors")
    save_file({name: weights[name] for name in names[20:]}, folder / "model-00002-of-00002.safetensors")
    config = {"num_attention_heads": HEADS, "rms_norm_eps": 1e-5, "block_size": GRID**2, "rope_base": 10000}
    (folder / "config.json").write_text(json.dumps(config))
    return folder, released


@torch.no_grad()
def assert_computes(model: LlamaGenTransformer, released: dict[str, Tensor]) -> None:
    features, mask, tokens = torch.randn(1, 6, 12), random_masks(4), torch.arange(16)[None]
    expected = naive_rows(model.config, released, features[0], mask[0], tokens[0, :-1])
    torch.testing.assert_close(model(features, mask, tokens).hidden[0], expected, rtol=0, atol=ATOL)


@pytest.mark.parametrize("wrapper", ["model", "module", "state_dict"])
def test_a_released_checkpoint_computes_the_same(tmp_path: Path, wrapper: str):
    path, released = write_released(tmp_path, wrapper)
    model = convert_transformer(path, GRID, HEADS)
    assert_computes(model, released)
    assert {name: model.config[name] for name in TINY} == TINY


def test_a_bare_state_dict_is_read_too(tmp_path: Path):
    released = released_weights(make_tiny())
    torch.save(released, tmp_path / "bare.pt")
    assert_computes(convert_transformer(tmp_path / "bare.pt", GRID, HEADS), released)


def test_lanterns_copy_computes_the_same_and_tells_its_shape(tmp_path: Path):
    folder, released = write_lantern(tmp_path / "copy")
    model = convert_transformer(folder, None, None)
    assert_computes(model, released)
    assert {name: model.config[name] for name in TINY} == TINY


@torch.no_grad()
def test_the_vq_checkpoint_decodes_the_same(tmp_path: Path):
    path, original = write_vq(tmp_path)
    found = convert_vqvae(path, 4)
    tokens = torch.randint(64, (2, 16))
    assert torch.equal(found.decode(tokens), original.decode(tokens))
    assert found.config.to_diff_dict() == original.config.to_diff_dict()


def write_vq(folder: Path) -> tuple[Path, JanusVQVAE]:
    """A random tokenizer under the released names (vq_model.py)."""
    sizes = dict(num_embeddings=64, base_channels=32, channel_multiplier=[1, 2], num_res_blocks=1, latent_channels=32)
    config = JanusVQVAEConfig(**sizes, num_patches=4)
    torch.manual_seed(0)
    original = JanusVQVAE(config)
    renames = {
        "encoder.down.": "encoder.conv_blocks.",
        "decoder.up.": "decoder.conv_blocks.",
        ".block.": ".res.",
        ".mid.block_1.": ".mid.0.",
        ".mid.attn_1.": ".mid.1.",
        ".mid.block_2.": ".mid.2.",
    }
    weights = {"quantize.codebook_used": torch.zeros(65536)}
    for name, weight in original.state_dict().items():
        for ours, theirs in renames.items():
            name = name.replace(ours, theirs)
        weights[name] = weight
    torch.save({"model": weights}, folder / "vq.pt")
    return folder / "vq.pt", original


def test_the_command_writes_a_folder_that_pipelines_load(tmp_path: Path):
    checkpoint, released = write_released(tmp_path)
    vq, _ = write_vq(tmp_path)
    text = tmp_path / "t5"
    encoder = tiny.text_encoder()
    encoder.config.d_model = TINY["caption_dim"]
    type(encoder)(encoder.config).save_pretrained(text)
    tiny.tokenizer().save_pretrained(text)
    target = tmp_path / "new"
    words = f"{target} --transformer {checkpoint} --vqvae {vq} --text-encoder {text} --grid {GRID} --heads {HEADS}"
    main(words.split())
    pipe = ARPipeline.from_pretrained(target)
    assert_computes(pipe.transformer, released)
    image = pipe("a red panda", generator=torch.Generator().manual_seed(0)).images[0]
    assert image.size == (8, 8)


def cut_short(folder: Path) -> str:
    path, _ = write_released(folder)
    path.write_bytes(path.read_bytes()[:5000])
    return f"--transformer {path} --grid 4"


def lacking_a_tensor(folder: Path) -> str:
    path, released = write_released(folder)
    del released["layers.1.feed_forward.w3.weight"]
    torch.save(released, path)
    return f"--transformer {path} --grid 4"


def with_another_tensor(folder: Path) -> str:
    path, released = write_released(folder)
    torch.save(released | {"layers.1.attention.bias": torch.zeros(3)}, path)
    return f"--transformer {path} --grid 4"


def class_conditional(folder: Path) -> str:
    path, released = write_released(folder)
    released = {name: weight for name, weight in released.items() if not name.startswith("cls_embedding")}
    torch.save(released | {"cls_embedding.embedding_table.weight": torch.zeros(1001, 32)}, path)
    return f"--transformer {path} --grid 4"


def of_wrong_shape(folder: Path) -> str:
    path, released = write_released(folder)
    torch.save(released | {"norm.weight": torch.ones(31)}, path)
    return f"--transformer {path} --grid 4 --heads 2"


def something_else(folder: Path) -> str:
    torch.save({"weight": torch.ones(3)}, folder / "other.pt")
    return f"--transformer {folder / 'other.pt'} --grid 4"


def not_tensors(folder: Path) -> str:
    torch.save([1, 2], folder / "list.pt")
    return f"--transformer {folder / 'list.pt'}"


def code_in_a_pickle(folder: Path) -> str:
    torch.save({"model": Path}, folder / "evil.pt")
    return f"--transformer {folder / 'evil.pt'}"


def with_another_text_encoder(folder: Path) -> str:
    tiny.text_encoder().save_pretrained(folder / "t5")
    tiny.tokenizer().save_pretrained(folder / "t5")
    return f"--transformer {write_released(folder)[0]} --grid 4 --heads 2 --text-encoder {folder / 't5'}"


def nothing_there(folder: Path) -> str:
    return f"--transformer {folder / 'missing.pt'}"


def without_grid(folder: Path) -> str:
    return f"--transformer {write_released(folder)[0]} --heads 2"


def without_heads(folder: Path) -> str:
    return f"--transformer {write_released(folder)[0]} --grid 4"


def a_text_file(folder: Path, content: str = "Hello, this is no checkpoint.\n") -> str:
    (folder / "notes.pt").write_text(content)
    return f"--transformer {folder / 'notes.pt'} --grid 4"


def an_empty_object(folder: Path) -> str:
    return a_text_file(folder, "{}\n")


def with_options(options: str) -> Callable[[Path], str]:
    return lambda folder: f"--transformer {write_released(folder)[0]} --grid 4 --heads 2 {options}"


def a_transformer_as_tokenizer(folder: Path) -> str:
    path = write_released(folder)[0]
    return f"--transformer {path} --grid 4 --heads 2 --vqvae {path}"


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (cut_short, "must be a whole checkpoint"),
        (lacking_a_tensor, "it lacks 'layers.1.feed_forward.w3.weight'"),
        (with_another_tensor, "it also holds 'layers.1.attention.bias'"),
        (class_conditional, "it lacks 'cls_embedding.uncond_embedding'"),
        (of_wrong_shape, "size mismatch for norm.weight"),
        (something_else, "is not a LlamaGen: it holds 'weight'"),
        (not_tensors, "must hold tensors by name"),
        (code_in_a_pickle, "must be a whole checkpoint"),
        (with_another_text_encoder, "`--text-encoder` must be 12 wide"),
        (nothing_there, "there is no such file"),
        (without_grid, "`--grid` must be given"),
        (without_heads, "`--heads` must be given"),
        (a_text_file, "must be a whole checkpoint"),
        (an_empty_object, "must be a whole checkpoint"),
        (with_options("--heads 0"), "`--heads` must be a whole number from 1, got 0"),
        (with_options("--heads -2"), "`--heads` must be a whole number from 1, got -2"),
        (with_options("--heads 3"), "`--heads` must divide 8"),
        (with_options("--grid 0"), "`--grid` must be a whole number from 1, got 0"),
        (with_options("--grid -4"), "`--grid` must be a whole number from 1, got -4"),
        (with_options("--grid 100000"), "`--grid` must be at most 128 squares a side, got 100000"),
        (with_options("--text-encoder /nowhere/t5"), "`--text-encoder` must be google/flan-t5-xl or a folder"),
        (with_options("--text-encoder="), "`--text-encoder` must be google/flan-t5-xl or a folder"),
        (a_transformer_as_tokenizer, "is not LlamaGen's VQ tokenizer"),
    ],
)
def test_bad_sources_are_refused_in_one_sentence(make: Callable[[Path], str], complaint: str, tmp_path: Path, capsys):
    words = make(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main([str(tmp_path / "new"), *words.split()])
    message = capsys.readouterr().err.splitlines()[-1]
    assert stop.value.code == 2 and complaint in message and len(message) < 400, message
    assert not (tmp_path / "new").exists(), "a refused conversion leaves nothing behind"


def test_nothing_is_written_over(tmp_path: Path, capsys):
    path, _ = write_released(tmp_path)
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--transformer", str(path), "--grid", "4", "--heads", "2"])
    assert "must be a new or an empty folder" in capsys.readouterr().err
