"""A model's folder: components in diffusers' layout, one folder each. Says in one sentence what is wrong with one."""

import json
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from pipelines.models.weights import check_loaded, stored_tensors
from pipelines.settings import read_defaults


INDEX = "model_index.json"
MODELS = ("transformer", "vqvae", "text_encoder", "draft_model")
COMPONENTS = (*MODELS, "tokenizer")


@dataclass(frozen=True)
class Origin:
    """Where weights came from: the name of their folder, and its `method_defaults.json`."""

    name: str
    defaults: dict[str, dict[str, Any]]


MEMORY = Origin("built in memory", {})

# By transformer, so that every pipeline over the same weights knows where they came from.
_origins: "weakref.WeakKeyDictionary[nn.Module, Origin]" = weakref.WeakKeyDictionary()


def origin_of(transformer: nn.Module) -> Origin:
    return _origins.get(transformer, MEMORY)


def adopt(folder: Path, components: dict[str, Any]) -> None:
    """Remember that these components were loaded from `folder`. Raises ValueError where a tensor was not."""
    for name in MODELS:
        if name in components:
            check_loaded(components[name], folder / name)
    if "transformer" in components:
        _origins[components["transformer"]] = Origin(folder.name, read_defaults(folder))


def open_folder(path: str | PathLike) -> Path:
    """The folder at `path`, whole. Raises ValueError where there is none."""
    folder = Path(path)
    if not folder.is_dir():
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
    ValueError, naming what is missing, for a folder of something else and for one that lacks a component, or has its
    weights only in part.
    """
    index = _index(folder)
    if index.get("_class_name") not in savers:
        raise ValueError(
            f"`{folder}` holds a {index.get('_class_name')}, which is not a model of ours; "
            f"it must have been saved by one of {', '.join(sorted(savers))}."
        )
    if not isinstance(index.get("settings"), dict | None):
        raise ValueError(f"`{folder / INDEX}` must hold its `settings` as an object, got {index['settings']!r}.")
    held = [name for name in COMPONENTS if name not in given and _is_held(index.get(name))]
    transformer = index.get("transformer")
    if "transformer" not in given and (not _is_held(transformer) or transformer[1] not in transformers):
        allowed = " or ".join(transformers)
        raise ValueError(f"`{folder / INDEX}` must name a {allowed} as transformer, got {transformer}.")
    for name in held:
        if not (folder / name).is_dir():
            raise ValueError(f"`{folder}` lacks the folder {name!r} that its {INDEX} names.")
        if name in MODELS:
            stored_tensors(folder / name)
    return held


@contextmanager
def loading(folder: Path) -> Iterator[None]:
    """What goes wrong inside becomes one ValueError of one sentence that names the folder."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split()).split(". ")[0].removesuffix(".")
        raise ValueError(f"`{folder}` cannot be loaded: {reason}.") from error


def _index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    if not path.is_file():
        raise ValueError(f"`{folder}` is not a model folder: it has no {INDEX}.")
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"`{path}` is not JSON: {error}.") from error
    if not isinstance(index, dict):
        raise ValueError(f"`{path}` must hold a JSON object, got a {type(index).__name__}.")
    return index


def _is_held(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and entry[0] is not None
