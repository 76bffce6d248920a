"""Do guesses that grew pass the check, and does leaning on growth bring the guesses' law nearer to the target's?

    python -m benchmarks.growth --windows 16 8 32 64 --images 100

Claims of SJD-VP, arXiv:2603.27115. Every run is kept at once under --keep, so a command that was cut short goes on
where it was. A JSON file and a figure are written.
"""

import argparse
import dataclasses
import datetime
import itertools
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import pipelines
from benchmarks import fidelity, figures, quality
from benchmarks.record import RESAMPLES, RESULTS, check_writable, command
from benchmarks.run import EMBEDDED, dice, opened
from benchmarks.watched import KINDS, LAWS, NOTES
from pipelines.base import ARImagePipeline
from pipelines.primitives.trace import Trace, load
from training import scenes
from visualize.export import figure_png
from visualize.growth import by_window
from visualize.past import STEPS, Checked, chance, checked, grew


OCCUPIED = (0.25, 0.75)  # share of fresh scenes whose object covers a square of the background, of the object
SCENES = 500
SHUFFLES = 20
WHERE = (
    f"a drawn picture has no mask: object is where the object of at least {OCCUPIED[1]:.0%} of {SCENES} fresh scenes "
    f"lies, background where that of at most {OCCUPIED[0]:.0%}; sure and unsure: entropy of the target's law at the "
    "check below and above the median"
)


@dataclass(frozen=True)
class Ratio:
    """A mean over guesses with its 95 % interval, pictures being resampled; n: guesses."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Picture:
    """What is taken of one run. overlaps: [n, NOTES]."""

    nfe: int
    guesses: list[Checked]
    overlaps: np.ndarray


def picture(trace: Trace) -> Picture:
    rows = np.concatenate([step.notes["overlaps"] for step in trace.steps if "overlaps" in step.notes])
    return Picture(trace.nfe, checked(trace), rows[~np.isnan(rows[:, 0])].astype(float))


def draw(pipe: ARImagePipeline, asked: list[quality.Task], keep: Path, seed: int, name: str) -> list[Picture]:
    """The tasks' runs: read from the folder `keep`, or drawn and added to it."""
    keep.mkdir(parents=True, exist_ok=True)
    pipe.set_progress_bar_config(disable=True)
    found = []
    for task in asked:
        path = keep / f"{task.index}.npz"
        if not path.exists():
            drawn = pipe(task.prompt, generator=dice(seed + task.index), output_type="latent")
            drawn.traces[0].save(path.with_suffix(".part"))
            path.with_suffix(".part").rename(path)
            if task.index % 20 == 19:
                print(f"{name}: {task.index + 1} of {len(asked)}", file=sys.stderr, flush=True)
        found.append(picture(load(path)))
    return found


def ratio(sums: Iterable[tuple[float, int]]) -> Ratio:
    """sums: of each picture, a sum over guesses and their number."""
    pairs = np.array(list(sums), float)
    picks = np.random.default_rng(0).integers(len(pairs), size=(RESAMPLES, len(pairs)))
    total, number = pairs[picks].sum(1).T
    means = total[number > 0] / number[number > 0]
    low, high = np.percentile(means, [2.5, 97.5]) if len(means) else (float("nan"),) * 2
    value = pairs[:, 0].sum() / pairs[:, 1].sum() if pairs[:, 1].any() else float("nan")
    return Ratio(float(value), float(low), float(high), int(pairs[:, 1].sum()))


def mean(pictures: list[Picture], which: Callable[[Checked], bool], what: Callable[[Checked], float]) -> Ratio:
    """Of `what`, over the guesses of which `which` is true."""
    chosen = [[float(what(one)) for one in each.guesses if which(one)] for each in pictures]
    return ratio((sum(values), len(values)) for values in chosen)


def occupied(side: int) -> np.ndarray:
    """[side * side] share of fresh scenes whose object covers most of a square."""
    found = figures.fresh_scenes(SCENES, np.random.default_rng(0))
    patch = found[0].opaque.shape[0] // side
    return np.mean([figures.cells(scene.opaque, patch).mean(-1) > 0.5 for scene in found], 0).ravel()


def regions(pictures: list[Picture], covered: np.ndarray) -> dict[str, Callable[[Checked], bool]]:
    middle = np.median([one.entropy for each in pictures for one in each.guesses])
    return {
        "all": lambda one: True,
        "object": lambda one: covered[one.square] >= OCCUPIED[1],
        "background": lambda one: covered[one.square] <= OCCUPIED[0],
        "sure": lambda one: one.entropy <= middle,
        "unsure": lambda one: one.entropy > middle,
    }


def growth_shares(pictures: list[Picture], covered: np.ndarray) -> dict:
    """By fate, region and N: share that grew in the last N changes, the check the last, and its chance level."""
    found: dict = {}
    for fate in ("kept", "refused"):
        for region, lies in regions(pictures, covered).items():
            for steps in STEPS:

                def able(one, steps=steps, lies=lies, fate=fate):
                    return len(one.probs) > steps and lies(one) and one.is_kept == (fate == "kept")

                share = mean(pictures, able, lambda one, steps=steps: grew(one.probs, steps))
                level = mean(pictures, able, lambda one, steps=steps: chance(one.probs, steps))
                found.setdefault(fate, {}).setdefault(region, {})[steps] = {"grew": share, "chance": level}
    return found


def anywhere(probs: np.ndarray, steps: int) -> bool:
    """Whether it grew N times in a row in some N passes of its life."""
    return any(grew(probs[:end], steps) for end in range(steps + 1, len(probs) + 1))


def growth_anywhere(pictures: list[Picture]) -> dict:
    """By N: share of kept guesses that grew N times in a row at some time; in random order of passes."""
    rng = np.random.default_rng(0)
    found = {}
    for steps in STEPS:

        def able(one, steps=steps):
            return len(one.probs) > steps and one.is_kept

        def shuffled(one, steps=steps):
            return np.mean([anywhere(rng.permutation(one.probs), steps) for _ in range(SHUFFLES)])

        share = mean(pictures, able, lambda one, steps=steps: anywhere(one.probs, steps))
        found[steps] = {"grew": share, "chance": mean(pictures, able, shuffled)}
    return found


def kept_given(pictures: list[Picture], is_checked: bool) -> dict:
    """By N: share kept of the guesses that grew and of the others.

    is_checked: whether the check is the last of the N changes; else the pass is that the guess was drawn after, which
    is what a drafter knows.
    """
    found = {}
    for steps in STEPS:

        def seen(one):
            return one.probs if is_checked else one.probs[:-1]

        found[steps] = {
            words: mean(
                pictures,
                lambda one, steps=steps, has=has: len(seen(one)) > steps and grew(seen(one), steps) == has,
                lambda one: one.is_kept,
            )
            for words, has in (("grew", True), ("not", False))
        }
    return found


def overlap(pictures: list[Picture]) -> dict:
    """Of each law: mean over checked guesses of sum min(p, q), and what it is beyond that of the newest law."""
    rows = [each.overlaps for each in pictures]
    return {
        name: {
            "mean": ratio((own[:, at].sum(), len(own)) for own in rows),
            "change": ratio(((own[:, at] - own[:, 0]).sum(), len(own)) for own in rows) if name in LAWS else None,
        }
        for at, name in enumerate(NOTES)
    }


def figured(pictures: list[Picture], covered: np.ndarray) -> dict:
    return {
        "images": len(pictures),
        "nfe": float(np.mean([each.nfe for each in pictures])),
        "rose_since_first_seen": {  # whether the law at the check gives a kept guess more than the first law did
            fate: mean(
                pictures,
                lambda one, fate=fate: len(one.probs) > 1 and one.is_kept == (fate == "kept"),
                lambda one: one.probs[-1] > one.probs[0],
            )
            for fate in ("kept", "refused")
        },
        "growth": growth_shares(pictures, covered),
        "growth_anywhere": growth_anywhere(pictures),
        "kept_given_growth_up_to_the_check": kept_given(pictures, True),
        "kept_given_growth_known_to_the_drafter": kept_given(pictures, False),
        "overlap": overlap(pictures),
    }


def report(methods: dict[str, dict]) -> str:
    lines = []
    for name, one in methods.items():
        lines.append(f"{name}: {one['images']} images, {one['nfe']:.1f} passes")
        for fate, cells in one["growth"].items():
            for region, by_steps in cells.items():
                told = (f"{c['grew'].value:.3f} (chance {c['chance'].value:.3f})" for c in by_steps.values())
                lines.append(f"  {fate:8}{region:11} {', '.join(told)}")
        told = (f"{c['grew'].value:.3f} (chance {c['chance'].value:.3f})" for c in one["growth_anywhere"].values())
        lines.append(f"  kept    at some time: {', '.join(told)}")
        rose = (f"{fate} {c.value:.3f}" for fate, c in one["rose_since_first_seen"].items())
        lines.append(f"  rose since first seen: {', '.join(rose)}")
        for words in ("kept_given_growth_up_to_the_check", "kept_given_growth_known_to_the_drafter"):
            told = (f"{c['grew'].value:.3f} against {c['not'].value:.3f}" for c in one[words].values())
            lines.append(f"  {words}: {', '.join(told)}")
        for law, cell in one["overlap"].items():
            change = cell["change"]
            told = f"{change.value:+.4f} ({change.low:+.4f} to {change.high:+.4f})" if change else ""
            lines.append(f"  {law:30} {cell['mean'].value:.4f} {told}")
    return "\n".join(lines)


def measure(options: argparse.Namespace) -> dict:
    base = opened(options.model)
    covered, methods = occupied(base.layout().rows), {}
    for window, images in zip(options.windows, itertools.cycle(options.images)):
        todo = quality.tasks(images, options.seed)
        for name, kind in KINDS.items():
            pipe = kind(**base.components, settings={"window": window})
            keep = options.keep / fidelity.file_of(pipe, options.seed).removesuffix(".jsonl")
            drawn = draw(pipe, todo, keep, options.seed, f"{name}, window {window}")
            methods[f"{name}, window {window}"] = {"method": name, "window": window} | figured(drawn, covered)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "model": options.model.name,
        "weights_sha256": base.weights_sha256,
        "machine": quality.machine(base),
        "seed": options.seed,
        "sampling": base.sampling.to_dict(),
        "regions": WHERE,
        "squares": {"object": int((covered >= OCCUPIED[1]).sum()), "background": int((covered <= OCCUPIED[0]).sum())},
        "methods": methods,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--windows", type=int, nargs="+", default=[16, 8, 32, 64])
    parser.add_argument(
        "--images", type=int, nargs="+", default=[100], help="pictures a method: of each window in turn"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first picture; the next has the next seed")
    parser.add_argument("--model", type=Path, default=EMBEDDED, help="a model folder")
    parser.add_argument("--keep", type=Path, default=scenes.CACHE / "growth", help="folder of drawn runs")
    parser.add_argument(
        "--out", type=Path, default=RESULTS / "growth.json", help="JSON file; the figure lies beside it"
    )
    options = parser.parse_args()
    if min(options.images) < 2:
        raise ValueError(f"`--images` must be at least 2, got {min(options.images)}; 100 gives narrow intervals.")
    if options.seed < 0:
        raise ValueError(f"`--seed` must be at least 0, got {options.seed}.")
    for window in options.windows:
        pipelines.SJDVPPipeline.Settings().revise({"window": window}, owner="--windows")
    check_writable("--out", options.out)
    check_writable("--keep", options.keep / "drawn.jsonl")
    record = measure(options)
    options.out.write_text(json.dumps(record, indent=1, ensure_ascii=False, default=dataclasses.asdict) + "\n")
    options.out.with_suffix(".png").write_bytes(figure_png(by_window(record["methods"], LAWS)))
    print(f"{report(record['methods'])}\n\nWritten to {options.out}.")


if __name__ == "__main__":
    command(main)
