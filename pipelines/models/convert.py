"""Released LlamaGen checkpoints to a folder that the pipelines load: python -m pipelines.models.convert --help"""

import argparse
import itertools
import json
import math
import pickle
import re
import struct
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoTokenizer, JanusVQVAE, JanusVQVAEConfig, T5EncoderModel

from pipelines.models.llamagen import SIZES, LlamaGenTransformer


Model = TypeVar("Model", LlamaGenTransformer, JanusVQVAE)

WRAPPERS = ("model", "module", "state_dict")  # keys under which training loops put the weights

# Our tensor -> the tensors it is made of, one below the other, in the released layout and in that of LANTERN's copies.
TOP = {
    "condition.uncond_embedding": ("cls_embedding.uncond_embedding", "model.cls_embedding.uncond_embedding"),
    "condition.fc1.weight": ("cls_embedding.cap_proj.fc1.weight", "model.cls_embedding.cap_proj.fc1.weight"),
    "condition.fc2.weight": ("cls_embedding.cap_proj.fc2.weight", "model.cls_embedding.cap_proj.fc2.weight"),
    "token_embedding.weight": ("tok_embeddings.weight", "model.embed_tokens.weight"),
    "norm.weight": ("norm.weight", "model.norm.weight"),
    "head.weight": ("output.weight", "lm_head.weight"),
}
LAYER = {
    "attention_norm": ("attention_norm", "input_layernorm"),
    "qkv": ("attention.wqkv", "self_attn.q_proj self_attn.k_proj self_attn.v_proj"),
    "attention_out": ("attention.wo", "self_attn.o_proj"),
    "ffn_norm": ("ffn_norm", "post_attention_layernorm"),
    "gate_up": ("feed_forward.w1 feed_forward.w3", "mlp.gate_proj mlp.up_proj"),
    "down": ("feed_forward.w2", "mlp.down_proj"),
}
LAYER_PREFIX = ("layers.{}.", "model.layers.{}.")
VQ_RENAMES = (
    (r"^encoder\.conv_blocks\.(\d+)\.", r"encoder.down.\1."),
    (r"^decoder\.conv_blocks\.(\d+)\.", r"decoder.up.\1."),
    (r"^((?:en|de)coder\.\w+\.\d+)\.res\.", r"\1.block."),
    (r"\.mid\.0\.", ".mid.block_1."),
    (r"\.mid\.1\.", ".mid.attn_1."),
    (r"\.mid\.2\.", ".mid.block_2."),
)
VQ_LANDMARKS = ("encoder.conv_in.weight", "quant_conv.weight", "quantize.embedding.weight")
VQ_COUNTER = "quantize.codebook_used"  # how often training used a code
LARGEST_GRID = 128  # squares a side: pictures of 2048 pixels

# What the readers raise for a file that is something else; any text is a pickle of some kind up to its first error.
NOT_A_CHECKPOINT = (
    *(SafetensorError, pickle.UnpicklingError, struct.error, RuntimeError, OSError, EOFError),
    *(ValueError, LookupError, TypeError, AttributeError),
)


def convert_transformer(source: Path, grid_size: int | None, num_heads: int | None) -> LlamaGenTransformer:
    """The transformer of a released .pt file, or of a folder in the layout of LANTERN's copies.

    grid_size, num_heads: None where the folder's config or LlamaGen's named sizes tell. Raises ValueError where they
    do not, and for anything that is not a text-to-image LlamaGen.
    """
    tensors = read_tensors(source)
    layout = next((i for i, name in enumerate(TOP["token_embedding.weight"]) if name in tensors), None)
    if layout is None:
        raise ValueError(f"`{source}` is not a LlamaGen: it holds {next(iter(tensors))!r} and the like.")
    state = {own: _take(tensors, [names[layout]], source) for own, names in TOP.items()}
    layers = 0
    while any(name.startswith(LAYER_PREFIX[layout].format(layers)) for name in tensors):
        for own, names in LAYER.items():
            parts = [f"{LAYER_PREFIX[layout].format(layers)}{name}.weight" for name in names[layout].split()]
            state[f"layers.{layers}.{own}"] = _take(tensors, parts, source)
        layers += 1
    if tensors or not layers:
        stray = f"it also holds {next(iter(tensors))!r}" if tensors else "it has no layers"
        raise ValueError(f"`{source}` is not a text-to-image LlamaGen: {stray}.")
    told = _lantern_config(source) if source.is_dir() else {}
    given = {"grid_size": grid_size, "num_heads": num_heads}
    config = told | {name: value for name, value in given.items() if value is not None}
    return _filled(LlamaGenTransformer, _complete(config, state, layers, source), state, source)


def convert_vqvae(source: Path, grid_size: int) -> JanusVQVAE:
    """LlamaGen's VQ tokenizer as transformers' `JanusVQVAE`, which is the same network under other names.

    Raises ValueError for anything else.
    """
    state = {}
    for name, tensor in read_tensors(source).items():
        for pattern, renamed in VQ_RENAMES:
            name = re.sub(pattern, renamed, name)
        state[name] = tensor
    state.pop(VQ_COUNTER, None)
    lacking = [name for name in VQ_LANDMARKS if name not in state]
    if lacking:
        raise ValueError(f"`{source}` is not LlamaGen's VQ tokenizer: it lacks {lacking[0]!r}.")
    first, last, codes = (state[name] for name in VQ_LANDMARKS)
    widths = [len(weight) for weight in _series(state, "encoder.down.{}.block.0.conv2.weight")]
    config = JanusVQVAEConfig(
        embed_dim=codes.shape[1],
        num_embeddings=codes.shape[0],
        latent_channels=last.shape[1],
        base_channels=len(first),
        channel_multiplier=[width // len(first) for width in widths],
        num_res_blocks=len(_series(state, "encoder.down.0.block.{}.conv2.weight")),
        num_patches=grid_size,
    )
    return _filled(JanusVQVAE, {"config": config}, state, source)


def read_tensors(source: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint file, or of the weight files of a folder. Raises ValueError where there are none."""
    files = [source]
    if source.is_dir():
        found = (sorted(source.glob(pattern)) for pattern in ("*.safetensors", "*.bin", "*.pt"))
        files = next(filter(None, found), [])
    tensors: dict[str, Any] = {}
    for file in files:
        tensors |= _read_file(file)
    if not tensors or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise ValueError(f"`{source}` must hold tensors by name, alone or under one of {', '.join(WRAPPERS)}.")
    return tensors


def _read_file(file: Path) -> dict[str, Any]:
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        # Training checkpoints of LlamaGen carry the command line beside the weights.
        with torch.serialization.safe_globals([argparse.Namespace]):
            held = torch.load(file, map_location=lambda storage, _: storage, weights_only=True)
    except FileNotFoundError as error:
        raise ValueError(f"`{file}` must be a checkpoint, there is no such file.") from error
    except NOT_A_CHECKPOINT as error:
        raise ValueError(
            f"`{file}` must be a whole checkpoint of tensors; it is cut short or something else."
        ) from error
    wrapper = next((key for key in WRAPPERS if isinstance(held, dict) and key in held), None)
    held = held if wrapper is None else held[wrapper]
    return held if isinstance(held, dict) else {}


def _take(tensors: dict[str, Tensor], names: list[str], source: Path) -> Tensor:
    """The named tensors one below the other; they are taken out of `tensors`."""
    lacking = [name for name in names if name not in tensors]
    if lacking:
        raise ValueError(f"`{source}` is not a text-to-image LlamaGen: it lacks {lacking[0]!r}.")
    parts = [tensors.pop(name) for name in names]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _series(state: dict[str, Tensor], pattern: str) -> list[Tensor]:
    """Tensors whose names count up from 0."""
    names = itertools.takewhile(state.__contains__, map(pattern.format, itertools.count()))
    return [state[name] for name in names]


def _lantern_config(folder: Path) -> dict[str, Any]:
    """What config.json tells that shapes do not."""
    try:
        held = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        told = {"num_heads": held["num_attention_heads"], "norm_eps": held["rms_norm_eps"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"`{folder / 'config.json'}` must tell num_attention_heads and rms_norm_eps.") from error
    if "block_size" in held:
        told["grid_size"] = math.isqrt(held["block_size"])
    if "rope_base" in held:
        told["rope_base"] = float(held["rope_base"])
    return told


def _complete(config: dict[str, Any], state: dict[str, Tensor], layers: int, source: Path) -> dict[str, Any]:
    """`config` with what the shapes and the named sizes tell."""
    cls_token_num, caption_dim = state["condition.uncond_embedding"].shape
    vocab_size, dim = state["token_embedding.weight"].shape
    heads = {(size["dim"], size["num_layers"]): size["num_heads"] for size in SIZES.values()}
    config = {"num_heads": heads.get((dim, layers))} | config
    for option, name, hint in (
        ("--heads", "num_heads", "it is none of LlamaGen's named sizes"),
        ("--grid", "grid_size", "16 for pictures of 256 pixels, 32 for 512"),
    ):
        if config.get(name) is None:
            raise ValueError(f"`{option}` must be given for `{source}`, which does not tell it: {hint}.")
        if not isinstance(config[name], int) or config[name] < 1:
            raise ValueError(f"`{option}` must be a whole number from 1, got {config[name]!r}.")
    if config["grid_size"] > LARGEST_GRID:
        raise ValueError(f"`--grid` must be at most {LARGEST_GRID} squares a side, got {config['grid_size']}.")
    if dim % (4 * config["num_heads"]):
        raise ValueError(f"`--heads` must divide {dim // 4}, a quarter of the width, got {config['num_heads']}.")
    return config | {
        "vocab_size": vocab_size,
        "dim": dim,
        "num_layers": layers,
        "ffn_dim": state["layers.0.down"].shape[1],
        "cls_token_num": cls_token_num,
        "caption_dim": caption_dim,
    }


def _filled(kind: type[Model], arguments: dict[str, Any], state: dict[str, Tensor], source: Path) -> Model:
    """A model of this kind that holds exactly these tensors."""
    with torch.device("meta"):
        model = kind(**arguments)
    try:
        model.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise ValueError(
            f"`{source}` is not the weights of one model: {str(error).splitlines()[1].strip()}"
        ) from error
    return model


def _text_parts(source: str) -> dict[str, Any]:
    """Text encoder and tokenizer of a folder, or of a name such as google/flan-t5-xl."""
    try:
        if not source.strip():
            raise ValueError("it is empty")
        encoder, tokenizer = T5EncoderModel.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"`--text-encoder` must be google/flan-t5-xl or a folder of a T5; {source!r} cannot be loaded as one."
        ) from error
    return {"text_encoder": encoder, "tokenizer": tokenizer}


def write_folder(arguments: argparse.Namespace) -> None:
    """Convert what the command line names into `target`, a folder that `ARPipeline.from_pretrained` reads."""
    target = arguments.target
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"`{target}` must be a new or an empty folder; nothing is written over.")
    text = None if arguments.text_encoder is None else _text_parts(arguments.text_encoder)
    parts: dict[str, Any] = {
        "transformer": convert_transformer(arguments.transformer, arguments.grid, arguments.heads)
    }
    if arguments.vqvae is not None:
        parts["vqvae"] = convert_vqvae(arguments.vqvae, parts["transformer"].config.grid_size)
    if text:
        width, wanted = text["text_encoder"].config.d_model, parts["transformer"].config.caption_dim
        if width != wanted:
            raise ValueError(f"`--text-encoder` must be {wanted} wide for this transformer, got one of {width}.")
        parts |= text
    index: dict[str, Any] = {"_class_name": "ARPipeline"}
    for name, part in parts.items():
        part.save_pretrained(target / name)
        module = type(part).__module__
        index[name] = [module if module.startswith("pipelines.") else "transformers", type(part).__name__]
    (target / "model_index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pipelines.models.convert", description=__doc__)
    parser.add_argument("target", type=Path, help="folder to write")
    parser.add_argument("--transformer", type=Path, required=True, help="t2i_XL_stage1_256.pt or a folder like it")
    parser.add_argument("--vqvae", type=Path, help="vq_ds16_t2i.pt")
    parser.add_argument("--text-encoder", help="google/flan-t5-xl, or a folder of it")
    parser.add_argument("--grid", type=int, help="squares a side: 16 for stage 1 (256 pixels), 32 for stage 2 (512)")
    parser.add_argument("--heads", type=int, help="attention heads, where the size is none of LlamaGen's")
    arguments = parser.parse_args(words)
    try:
        write_folder(arguments)
    except (ValueError, OSError) as error:
        parser.error(str(error).splitlines()[0])


if __name__ == "__main__":
    main()
