"""What tests of the page share: a model folder, and what a visitor sees."""

import base64
import io
import json
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from PIL import Image

import pipelines
from pipelines.contest import Contest, Line
from tests import tiny
from visualize.studio import Studio


PROMPT = "a panda on snow"
SEED = 7
SCENES = {"objects": ["panda", "cat"], "places": {"snow": "on snow"}, "styles": ["3d"], "examples": [PROMPT, "a cat"]}


def save_model(path: Path) -> Path:
    """A model folder as the page reads it."""
    pipelines.ARPipeline(**tiny.components()).save_pretrained(path)
    (path / "scenes.json").write_text(json.dumps(SCENES))
    (path / "method_defaults.json").write_text(json.dumps({"sampling": {"guidance_scale": 2.0}}))
    return path


def held(value: Any) -> Future:
    future = Future()
    future.set_result(value)
    return future


def open_studio(worker: ThreadPoolExecutor, components: Future) -> Studio:
    return Studio(worker, components, Line(), Contest)


def opened(line: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(line.split(",", 3)[3])))


def tokens_alone(
    model: dict[str, Any], prompt: str, seed: int, method: str = "ARPipeline", guidance_scale: float = 2.0
) -> list[list[int]]:
    """What the pipeline gives without a page."""
    pipe = getattr(pipelines, method)(**model)
    generator = torch.Generator().manual_seed(seed)
    return pipe(prompt, guidance_scale=guidance_scale, generator=generator, output_type="latent").images[0].tolist()
