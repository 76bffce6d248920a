"""Weights as files and as tensors: are they whole, and which are they? Knows nothing of what they compute."""

import hashlib
import json
import weakref
from collections.abc import Collection
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn


# Digest of every module asked about, with the dtype it had then: a cast may round the weights.
_digests: "weakref.WeakKeyDictionary[nn.Module, tuple[torch.dtype, str]]" = weakref.WeakKeyDictionary()


def stored_tensors(folder: Path) -> dict[str, list[int]]:
    """Name -> shape of the tensors that the safetensors files of a model's folder hold.

    Reads the heads of the files only. Raises ValueError where there is none, or one or their index is cut short.
    """
    files = set(folder.glob("*.safetensors"))
    for index in folder.glob("*.safetensors.index.json"):
        files |= {folder / shard for shard in _shards(index)}
    if not files:
        raise ValueError(f"`{folder}` holds no weights: a .safetensors file is missing.")
    return {name: shape for file in sorted(files) for name, shape in _shapes(file).items()}


def check_stored(module: nn.Module, folder: Path) -> None:
    """Raise ValueError unless the safetensors files of `folder` hold the tensors of `module`, all and no other.

    Its values are not read: a module without memory will do. The loaders of both libraries only warn of tensors they
    had to make up, and of those they left out.
    """
    stored, state = stored_tensors(folder), module.state_dict(keep_vars=True)
    lacking = [names[0] for names in _tied(state) if stored.keys().isdisjoint(names)]
    if lacking:
        raise ValueError(
            f"`{folder}` is not the weights of a {type(module).__name__}: it lacks {len(lacking)} of its tensors, "
            f"such as {lacking[0]!r}."
        )
    extra = sorted(stored.keys() - state.keys())
    if extra:
        raise ValueError(
            f"`{folder}` has weights of another model than its config.json describes: {len(extra)} tensors have no "
            f"place in it, such as {extra[0]!r}."
        )
    for name, shape in stored.items():
        if shape != list(state[name].shape):
            raise ValueError(
                f"`{folder}` has weights of another model than its config.json describes: {name!r} is {shape}, "
                f"not {list(state[name].shape)}."
            )


def sha256(modules: dict[str, nn.Module | None]) -> str:
    """Digest of named modules: all their tensors by name, shape and value as float32. Hexadecimal.

    The same for bfloat16 weights whether they are held in bfloat16 or in float32, on any device. Computed once for
    as long as a module keeps its dtype.
    """
    digests = [f"{name} {_digest(module)}\n" for name, module in modules.items() if module is not None]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _digest(module: nn.Module) -> str:
    dtype = next(module.parameters()).dtype
    known = _digests.get(module)
    if known and known[0] == dtype:
        return known[1]
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().float().cpu().contiguous().view(-1).numpy())
    _digests[module] = dtype, digest.hexdigest()
    return digest.hexdigest()


def _shards(index: Path) -> set[str]:
    try:
        return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"`{index}` must be the JSON index of safetensors files, it is cut short or another file."
        ) from error


def _shapes(file: Path) -> dict[str, list[int]]:
    try:
        with safe_open(file, framework="pt") as tensors:
            return {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"`{file}` is missing, cut short or no safetensors file: {error}.") from error


def _tied(state: dict[str, Tensor]) -> Collection[list[str]]:
    """Names of the state's tensors, those that are one together: a file keeps one of them."""
    groups: dict[int, list[str]] = {}
    for name, tensor in state.items():
        groups.setdefault(id(tensor), []).append(name)
    return groups.values()
