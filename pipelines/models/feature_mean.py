"""The mean of what a target's head reads. States less their mean tell likeness; raw ones all point one way."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor


FILE = "feature_mean.safetensors"


def write_mean(folder: Path, mean: Tensor) -> None:
    """Keep the mean [D] of a model's final-normed features beside its weights."""
    save_file({"mean": mean.float().cpu().contiguous()}, folder / FILE)


def read_mean(folder: Path, width: int) -> Tensor | None:
    """[D] float32; None where `folder` has none. Raises ValueError for a file of another kind or width."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        mean = load_file(path).get("mean")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"`{path}` is damaged or no file of `training.feature_mean`.") from error
    if mean is None or mean.shape != (width,):
        raise ValueError(f"`{path}` must hold a `mean` of {width} values; `training.feature_mean` writes it anew.")
    return mean
