"""How well the embedded model does what a prompt says, read back by an independent classifier.

    python -m benchmarks.quality --images 500

Half of the pictures are of pairs of object and place that training has seen, half of pairs held out of it. Every drawn
picture is kept at once under --keep: a run that was cut short goes on where it was, and a larger run starts from a
smaller one.
"""

import argparse
import dataclasses
import datetime
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks import figures
from benchmarks.figures import Share
from benchmarks.record import RESULTS, Machine, check_writable, command
from benchmarks.run import EMBEDDED, offered, opened, processor
from pipelines.base import ARImagePipeline
from pipelines.models.patch_tokenizer import PatchTokenizer
from pipelines.models.scene_classifier import SceneClassifier
from training import scenes


JUDGE = EMBEDDED.parent / "emoji-scenes-judge"
GROUPS = ("seen", "held_out")  # pairs of object and place, in turns
CHECKED_SCENES = 1000  # that the judge reads, as they are and reconstructed
TWINS = 400  # pairs of scenes whose tokens are compared
FORCED_SCENES = 96  # whose squares' entropy is taken
FIT = {"scenes": {"object": 0.99, "place": 0.99}, "reconstructions": {"object": 0.96, "place": 0.96}}
COLUMNS = 8  # of a sheet
WHERE = "squares free of the object in fresh scenes, teacher-forced, temperature 1, default guidance, nats"


@dataclass(frozen=True)
class Goal:
    """A row of the table of what to reach: "ship when" and "aim"."""

    figure: str
    ship: float
    aim: float
    unit: str
    is_limit: bool = False
    """Whether the figure must stay below, not above."""


GOALS = (
    Goal("objects x styles offered", 64, 300, ""),
    Goal("object read back", 0.75, 0.95, "%"),
    Goal("object read back, unseen pairs", 0.65, 0.90, "%"),
    Goal("place read back", 0.97, 0.99, "%"),
    Goal("tokenizer PSNR, fresh scenes", 27.5, 28.5, "dB"),
    Goal("repeatable interior tokens", 0.98, 0.98, "%"),
    Goal("mean target entropy in places", 2, 2, "nats"),
    Goal("assets", 30, 30, "MB", is_limit=True),
)


@dataclass(frozen=True)
class Task:
    """One picture to draw."""

    index: int
    name: str
    place: str

    @property
    def prompt(self) -> str:
        return f"a {self.name} {scenes.PLACES[self.place]}"

    @property
    def group(self) -> str:
        return GROUPS[scenes.is_held_out(self.name, self.place)]


def pairs(is_held_out: bool, rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    """All pairs of one kind in random order, but each object as often as any other; then all of them again."""
    found = list(itertools.product(scenes.OBJECT_NAMES, scenes.PLACE_NAMES))
    found = [found[index] for index in rng.permutation(len(found)) if scenes.is_held_out(*found[index]) == is_held_out]
    turns = {name: itertools.count() for name in scenes.OBJECT_NAMES}
    turn = {pair: next(turns[pair[0]]) for pair in found}
    return itertools.cycle(sorted(found, key=turn.get))


def tasks(count: int, seed: int) -> list[Task]:
    """What to draw: seen and held-out pairs in turns. More tasks begin with the fewer."""
    turns = itertools.cycle([pairs(held_out, np.random.default_rng(seed)) for held_out in (False, True)])
    return [Task(index, *next(source)) for index, source in zip(range(count), turns)]


def drawing_id(pipe: ARImagePipeline, seed: int) -> str:
    """What decides the tokens that a task leads to."""
    facts = [pipe.weights_sha256, str(pipe.transformer.dtype), pipe.sampling.to_dict(), seed]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def draw(pipe: ARImagePipeline, asked: list[Task], keep: Path, seed: int) -> Tensor:
    """Token ids [B, h, w] of the tasks' pictures: read from the file `keep`, or drawn and added to it."""
    keep.parent.mkdir(parents=True, exist_ok=True)
    lines = keep.read_text().splitlines() if keep.exists() else []
    drawn = {entry["index"]: entry["tokens"] for entry in map(json.loads, lines)}
    missing = [task for task in asked if task.index not in drawn]
    pipe.set_progress_bar_config(disable=True)
    with keep.open("a") as file:
        for count, task in enumerate(missing, 1):
            generator = torch.Generator().manual_seed(seed + task.index)
            tokens = pipe(task.prompt, generator=generator, output_type="latent").images[0].tolist()
            drawn[task.index] = tokens
            file.write(json.dumps({"index": task.index, "prompt": task.prompt, "tokens": tokens}) + "\n")
            file.flush()
            if count % 10 == 0 or count == len(missing):
                print(f"drawn {count} of {len(missing)}", file=sys.stderr, flush=True)
    return torch.tensor([drawn[task.index] for task in asked])


@torch.inference_mode()
def decode(tokenizer: PatchTokenizer, tokens: Tensor) -> Tensor:
    """[B, h, w] to pictures [B, 3, H, W]."""
    return torch.cat([tokenizer.decode(part) for part in tokens.split(figures.BATCH)])


def write_sheet(images: Tensor, path: Path) -> None:
    """Pictures [B, 3, H, W] in [-1, 1] side by side, `COLUMNS` a row, nothing between them."""
    pixels = ((images + 1) * 127.5).round().byte().permute(0, 2, 3, 1).numpy()
    rest = -len(pixels) % COLUMNS
    pixels = np.concatenate([pixels, np.full((rest, *pixels.shape[1:]), 255, np.uint8)])
    rows = pixels.reshape(-1, COLUMNS, *pixels.shape[1:]).swapaxes(1, 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rows.reshape(-1, COLUMNS * pixels.shape[2], 3)).save(path)


def judged(asked: list[Task], seen: list[tuple[str, str]]) -> dict[str, dict[str, Share]]:
    """Shares read back for each group, and for "all"."""
    groups = {group: [i for i, task in enumerate(asked) if task.group == group] for group in GROUPS}
    groups["all"] = list(range(len(asked)))
    return {
        group: figures.read_back([(asked[i].name, asked[i].place) for i in chosen], [seen[i] for i in chosen])
        for group, chosen in groups.items()
    }


def misread(asked: list[Task], seen: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Object asked for -> what was read in its stead, a name a picture."""
    wrong: dict[str, list[str]] = {}
    for task, (name, _) in zip(asked, seen):
        if name != task.name:
            wrong.setdefault(task.name, []).append(name)
    return dict(sorted(wrong.items(), key=lambda entry: -len(entry[1])))


def is_fit(judge: dict[str, dict[str, Share]]) -> bool:
    """Whether the classifier reads real scenes well enough to judge drawn ones."""
    return all(judge[kind][part].share >= least for kind, parts in FIT.items() for part, least in parts.items())


def megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def compared(values: dict[str, float]) -> list[dict]:
    """Each goal with the value measured and what it reaches: "aim", "ship" or "neither"."""
    rows = []
    for goal in GOALS:
        value = values[goal.figure]
        sign = -1 if goal.is_limit else 1
        reached = [name for name in ("aim", "ship") if sign * value >= sign * getattr(goal, name)]
        rows.append(dataclasses.asdict(goal) | {"value": value, "reached": [*reached, "neither"][0]})
    return rows


def measure(pipe: ARImagePipeline, options: argparse.Namespace) -> dict:
    """All figures, as they go into the JSON file."""
    tokenizer = PatchTokenizer.from_pretrained(options.model / "vqvae").float().eval()
    judge = SceneClassifier.from_pretrained(options.judge).float().eval()
    asked = tasks(options.images, options.seed)
    images = decode(
        tokenizer, draw(pipe, asked, options.keep / f"{drawing_id(pipe, options.seed)}.jsonl", options.seed)
    )
    if options.sheet:
        write_sheet(images, options.sheet)
    seen = figures.read(judge, images)
    drawn = judged(asked, seen)

    rng = np.random.default_rng(options.seed)
    found = figures.fresh_scenes(CHECKED_SCENES, rng)
    names = [(scene.name, scene.place) for scene in found]
    fresh = figures.to_images(found)
    made = figures.reconstruct(tokenizer, fresh)
    fitness = {
        kind: figures.read_back(names, figures.read(judge, pictures))
        for kind, pictures in (("scenes", fresh), ("reconstructions", made))
    }
    repeatable = figures.repeatability(tokenizer, TWINS, rng)
    entropy = figures.place_entropy(pipe, tokenizer, figures.fresh_scenes(FORCED_SCENES, rng))
    lists = offered(options.model, "objects", "styles")
    values = (
        len(lists["objects"]) * len(lists["styles"]),
        drawn["seen"]["object"].share,
        drawn["held_out"]["object"].share,
        drawn["all"]["place"].share,
        figures.psnr(made, fresh),
        repeatable.share,
        entropy["all"],
        megabytes(EMBEDDED.parent),
    )
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "model": options.model.name,
        "weights_sha256": pipe.weights_sha256,
        "machine": machine(pipe),
        "seed": options.seed,
        "images": len(asked),
        "sampling": pipe.sampling.to_dict(),
        "goals": compared(dict(zip([goal.figure for goal in GOALS], values))),
        "read_back": drawn,
        "judge": {"is_fit": is_fit(fitness), **fitness},
        "repeatable": repeatable,
        "entropy": {"where": WHERE, **entropy},
        "misread": misread(asked, seen),
    }


def machine(pipe: ARImagePipeline) -> Machine:
    return Machine(
        processor=processor(),
        cores=os.cpu_count(),
        threads=torch.get_num_threads(),
        device=str(pipe.device),
        dtype=str(pipe.transformer.dtype).removeprefix("torch."),
        torch=torch.__version__,
    )


def percent(share: Share) -> str:
    return f"{share.share:.1%} ({share.low:.1%}–{share.high:.1%}, n = {share.n})"


def quantity(value: float, unit: str) -> str:
    return f"{value:.1%}" if unit == "%" else f"{value:.4g} {unit}".strip()


def report(figured: dict) -> str:
    """The figures as text."""
    lines = [f"{'figure':32} {'value':>10} {'ship when':>10} {'aim':>10}  reached"]
    for row in figured["goals"]:
        numbers = "".join(f" {quantity(row[name], row['unit']):>10}" for name in ("value", "ship", "aim"))
        lines.append(f"{row['figure']:32}{numbers}  {row['reached']}")
    lines.append("\nRead back from drawn pictures, 95 % Wilson intervals; fidelity is the mean over object and place:")
    for group, parts in figured["read_back"].items():
        lines += [f"{group:9} {part:9} {percent(share)}" for part, share in parts.items()]
    verdict = "fit to judge" if figured["judge"]["is_fit"] else "NOT fit to judge, so the above says nothing"
    lines.append(f"\nThe classifier, on scenes it never saw: {verdict}.")
    for kind in FIT:
        lines += [f"{kind} {part} {percent(figured['judge'][kind][part])}" for part in FIT[kind]]
    return "\n".join(lines)


def check(options: argparse.Namespace) -> None:
    """Raise ValueError for what would fail only after the work."""
    if options.images < len(GROUPS):
        raise ValueError(f"`--images` must be at least {len(GROUPS)}, got {options.images}; 40 gives a first idea.")
    if options.seed < 0:
        raise ValueError(f"`--seed` must be at least 0, got {options.seed}.")
    offered(options.model, "objects", "styles")
    if not (options.judge / "config.json").is_file():
        raise ValueError(f"`--judge` must be the folder of a saved classifier; {options.judge} has no config.json.")
    check_writable("--out", options.out)
    check_writable("--keep", options.keep / "drawn.jsonl")
    if options.sheet:
        if options.sheet.suffix.lower() != ".png":
            raise ValueError(f"`--sheet` must be a file that ends in .png, got {str(options.sheet)!r}.")
        check_writable("--sheet", options.sheet)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how well the embedded model does what a prompt says.")
    parser.add_argument("--images", type=int, default=500, help="pictures to draw, half of them of held-out pairs")
    parser.add_argument("--seed", type=int, default=0, help="of the first picture; the next has the next seed")
    parser.add_argument("--model", type=Path, default=EMBEDDED, help="a model folder")
    parser.add_argument("--judge", type=Path, default=JUDGE, help="folder of the classifier")
    parser.add_argument("--out", type=Path, default=RESULTS / "quality.json", help="JSON file")
    parser.add_argument("--keep", type=Path, default=scenes.CACHE / "quality", help="folder of drawn tokens")
    parser.add_argument("--sheet", type=Path, help="PNG file of the drawn pictures")
    options = parser.parse_args()
    check(options)
    figured = measure(opened(options.model), options)
    options.out.write_text(json.dumps(figured, indent=2, ensure_ascii=False, default=dataclasses.asdict) + "\n")
    print(f"{report(figured)}\n\nWritten to {options.out}.")


if __name__ == "__main__":
    command(main)
