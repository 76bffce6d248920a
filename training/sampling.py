"""How a model draws unless told otherwise."""

import json
from pathlib import Path

from pipelines.primitives.distributions import Warp
from training.publish import SAMPLING


DEFAULTS = "method_defaults.json"


def default_sampling(model: Path) -> tuple[float, Warp]:
    """Guidance scale and warp that a model folder names as its defaults; what ships where it names none."""
    path = model / DEFAULTS
    sampling = dict(json.loads(path.read_text()).get("sampling", {}) if path.exists() else SAMPLING)
    return sampling.pop("guidance_scale", 1.0), Warp(**sampling)
