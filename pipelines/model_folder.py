"""A model's folder: components in diffusers' layout, one folder each. Says in one sentence what is wrong with one."""

import json
import sys
import threading
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from reprlib import repr as shown
from typing import Any

import torch
from diffusers import ConfigMixin
from torch import Tensor, nn

from pipelines.models.feature_mean import read_mean, write_mean
from pipelines.models.weights import check_stored
from pipelines.settings import read_defaults, write_defaults


INDEX = "model_index.json"
MODELS = ("transformer", "vqvae", "text_encoder", "draft_model")
TOKENIZER = "tokenizer"
COMPONENTS = (*MODELS, TOKENIZER)


@dataclass(frozen=True)
class Origin:
    """Where weights came from: the name of their folder, its `method_defaults.json`, its mean of features [D]."""

    name: str
    defaults: dict[str, dict[str, Any]]
    feature_mean: Tensor | None = None

    def write(self, folder: Path) -> None:
        """Keep what is known beside weights saved in `folder`; what is not gets no file."""
        write_defaults(folder, self.defaults)
        if self.feature_mean is not None:
            write_mean(folder, self.feature_mean)


MEMORY = Origin("built in memory", {})

# By transformer, so that every pipeline over the same weights knows where they came from.
_origins: "weakref.WeakKeyDictionary[nn.Module, Origin]" = weakref.WeakKeyDictionary()

# Both libraries change torch for the whole process while they build a model, which another thread's load would feel.
_loads = threading.RLock()
_loaded = threading.local()  # origin: of what this thread is loading, whose pipeline is built before it is adopted


def origin_of(transformer: nn.Module) -> Origin:
    return _origins.get(transformer) or getattr(_loaded, "origin", MEMORY)


def adopt(folder: Path, transformer: nn.Module) -> None:
    """Remember that this transformer was loaded from `folder`."""
    _origins[transformer] = Origin(folder.name, read_defaults(folder), read_mean(folder, transformer.config.dim))


def open_folder(path: str | PathLike) -> Path:
    """The folder at `path`, whole. Raises ValueError where there is none."""
    if not isinstance(path, str | PathLike) or not (folder := Path(path)).is_dir():
        raise ValueError(
            f"`pretrained_model_name_or_path` must be a model folder on this machine, got {str(path)!r}; "
            "a model of the Hub must be fetched first: `huggingface_hub.snapshot_download` returns its folder."
        )
    return folder.resolve()


def components_in(
    folder: Path, savers: Collection[str], transformers: Collection[str], given: Collection[str]
) -> list[str]:
    """Names of the components that `folder` holds, but those that are `given` otherwise.

    savers: class names of pipelines whose folders can be read; transformers: of those that can draw. Raises
    ValueError, naming what is missing, for a folder of something else and for one that lacks a component, has its
    weights only in part, or others than its config.json describes.
    """
    if not (folder / INDEX).is_file():
        raise ValueError(f"`{folder}` is not a model folder: it has no {INDEX}.")
    index = _object(folder / INDEX)
    if index.get("_class_name") not in savers:
        raise ValueError(
            f"`{folder}` holds a {index.get('_class_name')}, which is not a model of ours; "
            f"it must have been saved by one of {', '.join(sorted(savers))}."
        )
    if not isinstance(index.get("settings"), dict | None):
        found = shown(index["settings"])
        raise ValueError(f"`{folder / INDEX}` must hold its `settings` as an object, got {found}.")
    held = [name for name in COMPONENTS if name not in given and _is_held(index.get(name))]
    transformer = index.get("transformer")
    if "transformer" not in given and (not _is_held(transformer) or transformer[1] not in transformers):
        allowed = " or ".join(transformers)
        raise ValueError(f"`{folder / INDEX}` must name a {allowed} as transformer, got {shown(transformer)}.")
    for name in held:
        if not (folder / name).is_dir():
            raise ValueError(f"`{folder}` lacks the folder {name!r} that its {INDEX} names.")
        if name in MODELS:
            with _loads:
                check_stored(_skeleton(folder / name, _named(folder, index[name])), folder / name)
    return held


def tokenizer(folder: Path) -> Any:
    """The tokenizer that `folder` holds. Raises ValueError where its files are damaged or another's."""
    kind = _named(folder, _object(folder / INDEX)[TOKENIZER])
    try:
        found = kind.from_pretrained(folder / TOKENIZER, local_files_only=True)
        if type(found.backend_tokenizer.model).__name__ == "WordLevel" and found.unk_token is None:
            raise ValueError("tokenizer_config.json names no unknown token")
        return found
    except Exception as error:  # the library has no one class for what it cannot read
        raise ValueError(f"`{folder / TOKENIZER}` does not hold the files of a {kind.__name__}.") from error


@contextmanager
def loading(folder: Path) -> Iterator[None]:
    """One load at a time. What goes wrong inside becomes one ValueError of one sentence that names the folder."""
    try:
        with _loads:
            _loaded.origin = Origin(folder.name, read_defaults(folder))
            yield
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split()).split(". ")[0].rstrip(".")
        raise ValueError(f"`{folder}` cannot be loaded: {reason}{'' if reason.endswith('?') else '.'}") from error
    finally:
        _loaded.__dict__.clear()


def _object(path: Path) -> dict[str, Any]:
    """The JSON object of a file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise ValueError(f"`{path}` must hold a JSON object, it is missing, cut short or another file.") from error
    if not isinstance(found, dict):
        raise ValueError(f"`{path}` must hold a JSON object, got {shown(found)}.")
    return found


def _named(folder: Path, entry: list) -> Any:
    """The class that an entry of the index names. Nothing is imported for it."""
    library, name = map(str, entry)
    if found := getattr(sys.modules.get(library), name, None):
        return found
    raise ValueError(f"`{folder / INDEX}` names {shown(entry)}, which is no part of a model of ours.")


def _skeleton(folder: Path, kind: type[nn.Module]) -> nn.Module:
    """The model that `folder`'s config.json describes, without memory for its weights."""
    path = folder / "config.json"
    config = _object(path)
    described = config.get("_class_name", config.get("architectures", [kind.__name__]))
    if kind.__name__ not in described:
        raise ValueError(f"`{path}` must describe a {kind.__name__}, got {shown(described)}.")
    try:
        with torch.device("meta"):
            return kind.from_config(config) if issubclass(kind, ConfigMixin) else kind(kind.config_class(**config))
    except Exception as error:  # the libraries have no one class for values that make no model
        raise ValueError(f"`{path}` does not describe a {kind.__name__} that can be built.") from error


def _is_held(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and entry[0] is not None
