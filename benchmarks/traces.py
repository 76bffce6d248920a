"""Record the race that the page opens with: traces, decoded pictures, and the colours that show them without a model.

    python -m benchmarks.traces

Each method draws the same prompt with the same dice several times, the methods in turn; of each the run of middle
speed is kept. All in float32, so that other machines find the same tokens.
"""

import argparse
import datetime
import json
from pathlib import Path

import torch
from accelerate import PartialState
from PIL import Image

import pipelines
from benchmarks.record import Machine, command
from benchmarks.report import counted
from benchmarks.run import EMBEDDED, checked_methods, machine_of, race
from pipelines.base import ARImagePipeline
from pipelines.models.codebook import previews
from pipelines.primitives.trace import Trace
from visualize.export import picture_png
from visualize.style import hex_colours


TRACES = EMBEDDED.parent / "traces"
INDEX = "index.json"

# What the page opens with. Every method of the list is recorded; the reference comes first.
METHODS = ["ar", "sjd"]
PROMPT = "a penguin on snow"
SEED = 4
REPEATS = 3


def drawn(pipe: ARImagePipeline, trace: Trace) -> Image.Image:
    """The picture of a finished run."""
    latents = torch.from_numpy(trace.layout.grid(trace.tokens))[None].to(pipe.device)
    return pipe.image_processor.postprocess(pipe.decode_latents(latents), output_type="pil")[0]


def words(machine: Machine) -> str:
    """A machine in one line."""
    return f"{machine.processor}, {machine.cores} cores, {counted(machine.threads, 'thread')}, {machine.dtype}"


@torch.inference_mode()
def record(folder: Path, names: dict[str, str], prompt: str, seed: int, out: Path) -> None:
    """Draw with every method (short name -> class) and write into `out`, which gets nothing else.

    NAME.npz and NAME.png a method; index.json: the names in order, date, machine, and the palette as
    `visualize.style.hex_colours` writes it.
    """
    reference = pipelines.ARPipeline.from_pretrained(folder, dtype=torch.float32).to(PartialState().device)
    methods = {name: getattr(pipelines, pipeline)(**reference.components) for name, pipeline in names.items()}
    races = [race(methods, [prompt], seed) for _ in range(REPEATS)]
    out.mkdir(parents=True, exist_ok=True)
    for name, pipe in methods.items():
        trace = sorted((traces[name][0] for traces in races), key=lambda trace: trace.seconds)[REPEATS // 2]
        trace.save(out / f"{name}.npz")
        (out / f"{name}.png").write_bytes(picture_png(drawn(pipe, trace), trace))
        print(f"{name}: {trace.nfe} passes, {trace.seconds:.2f} s")
    index = {
        "lanes": list(names),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": words(machine_of(trace.header)),
        "palette": hex_colours(previews(reference.model)[0]),
    }
    (out / INDEX).write_text(json.dumps(index, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Record the race that the page opens with.")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=TRACES, help="folder")
    options = parser.parse_args()
    record(EMBEDDED, checked_methods(METHODS), PROMPT, options.seed, options.out)


if __name__ == "__main__":
    command(main)
