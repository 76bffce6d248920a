"""Is a guess refused because many tokens are about as likely? Chance of being kept against the target's entropy.

    python -m benchmarks.certainty --methods speculative sjd --images 16

Claim of all three papers. Prompts are held-out pairs of the training data; a JSON file and a figure are kept.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from accelerate import PartialState

import pipelines
from benchmarks.record import RESULTS, command
from benchmarks.run import EMBEDDED, checked_methods, race
from training.scenes import caption, sample
from visualize.certainty import by_entropy, certainty
from visualize.export import figure_png


def held_out_prompts(count: int) -> list[str]:
    """Captions of object and place that no training picture joined. Raises ValueError for fewer than one."""
    if count < 1:
        raise ValueError(f"`--images` must be at least 1, got {count}; 16 give a first idea.")
    rng = np.random.default_rng(6)
    return [caption(sample(rng, True), rng) for _ in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--methods", nargs="+", default=["speculative", "sjd"])
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--model", type=Path, default=EMBEDDED)
    args = parser.parse_args()
    names, prompts = checked_methods(args.methods), held_out_prompts(args.images)
    shared = pipelines.ARPipeline.from_pretrained(args.model, dtype=torch.float32).to(PartialState().device)
    methods = {name: getattr(pipelines, of)(**shared.components) for name, of in names.items() if name in args.methods}
    traces = race(methods, prompts, seed=0)
    figures = {name: [asdict(one) for one in by_entropy(own)] for name, own in traces.items()}
    (RESULTS / "certainty.json").write_text(json.dumps({"images": args.images, "methods": figures}, indent=1) + "\n")
    (RESULTS / "certainty.png").write_bytes(figure_png(certainty([trace for own in traces.values() for trace in own])))
    for name, bins in figures.items():
        print(
            name, *(f"{one['entropy']:.2f}: {one['chance']:.3f} ({one['low']:.3f}-{one['high']:.3f})" for one in bins)
        )


if __name__ == "__main__":
    command(main)
