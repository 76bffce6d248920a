"""What a faster method costs in its pictures: prompt fidelity, likelihood and Fréchet distance beside AR's.

    python -m benchmarks.fidelity --methods cool-sd:delta=2 lantern-plus-plus:lam=4 --images 1000

Every method draws the same prompts with the same seeds. Each picture is kept at once under --keep, so a run that was
cut short goes on where it was, two commands may draw two methods side by side, and fewer images can be reported than
are kept. Nothing here is timed: `benchmarks.run` is for that.
"""

import argparse
import dataclasses
import datetime
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import pipelines
from benchmarks import figures, quality
from benchmarks.figures import Share
from benchmarks.quality import JUDGE, Task
from benchmarks.record import RESAMPLES, RESULTS, command
from benchmarks.run import EMBEDDED, METHODS_HELP, REFERENCE, Entrant, entrants, opened
from pipelines.base import ARImagePipeline
from pipelines.models.patch_tokenizer import PatchTokenizer
from pipelines.models.scene_classifier import SceneClassifier
from pipelines.primitives.trace import Trace
from training import scenes


AGAIN = 1_000_000  # added to the seeds of AR's second set, whose distance from the first is that of chance alone


@dataclass(frozen=True)
class Drawn:
    """A picture and its counts. tokens: rows of ids; infidelity: a token; log_likelihood: nats a token."""

    index: int
    tokens: list[list[int]]
    nfe: int
    accepted_length: float
    infidelity: float
    log_likelihood: float


@dataclass(frozen=True)
class Difference:
    """A mean difference over pairs and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Point:
    """One method at one setting. Differences are over AR's pictures of the same prompts and seeds."""

    pipeline: str
    settings: dict[str, object]
    nfe: float
    accepted_length: float
    infidelity: float  # a token: sum over judged guesses of max(0, f - min(1, p/q))
    object: Share
    place: Share
    fidelity: Share  # mean of both
    fidelity_change: Difference
    log_likelihood: float  # nats a token, of the guided law before top-k and top-p
    log_likelihood_change: Difference
    frechet: float  # of the judge's features, from AR's pictures


def infidelity(trace: Trace) -> float:
    """A token: what the chances of all judged guesses exceed those of the exact rule by."""
    beyond = [step.accept_prob - np.minimum(1, step.p.astype(float) / step.q) for step in trace.steps]
    return float(np.nansum(np.maximum(0, np.concatenate(beyond))) / len(trace.tokens))


@torch.inference_mode()
def log_likelihood(pipe: ARImagePipeline, prompt: str, tokens: list[int]) -> float:
    """Nats a token, each given those before it, under the guided law at temperature 1, before top-k and top-p."""
    laws = figures.forced_laws(pipe, prompt, tokens)
    return float(laws.gather(1, torch.tensor(tokens, device=laws.device)[:, None]).clamp(min=1e-12).log().mean())


def kept_in(keep: Path) -> dict[int, Drawn]:
    """Pictures of a file, by index."""
    lines = keep.read_text().splitlines() if keep.exists() else []
    return {row["index"]: Drawn(**row) for row in map(json.loads, lines)}


def draw(pipe: ARImagePipeline, asked: list[Task], keep: Path, seed: int, name: str) -> list[Drawn]:
    """The tasks' pictures: read from the file `keep`, or drawn and added to it."""
    keep.parent.mkdir(parents=True, exist_ok=True)
    drawn = kept_in(keep)
    pipe.set_progress_bar_config(disable=True)
    missing = [task for task in asked if task.index not in drawn]
    with keep.open("a") as file:
        for count, task in enumerate(missing, 1):
            generator = torch.Generator().manual_seed(seed + task.index)
            found = pipe(task.prompt, generator=generator, output_type="latent")
            tokens, trace = found.images[0].tolist(), found.traces[0]
            nats = log_likelihood(pipe, task.prompt, sum(tokens, []))
            drawn[task.index] = Drawn(task.index, tokens, trace.nfe, trace.accepted_length, infidelity(trace), nats)
            file.write(json.dumps(dataclasses.asdict(drawn[task.index])) + "\n")
            file.flush()
            if count % 20 == 0 or count == len(missing):
                print(f"{name}: drawn {count} of {len(missing)}", file=sys.stderr, flush=True)
    return [drawn[task.index] for task in asked]


def file_of(pipe: ARImagePipeline, seed: int) -> str:
    """Name of the file of a method's pictures: what decides them."""
    drafts = pipelines.models.weights.sha256({"draft_model": pipe.draft_model}) if pipe.needs_draft_model else ""
    facts = [quality.drawing_id(pipe, seed), type(pipe).__name__, pipe.settings.to_dict(), drafts]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16] + ".jsonl"


@torch.inference_mode()
def readings(drawn: list[Drawn], tokenizer: PatchTokenizer, judge: SceneClassifier) -> Iterator[tuple]:
    """Object and place that the judge reads in each picture, and its features [64]."""
    images = quality.decode(tokenizer, torch.tensor([one.tokens for one in drawn]))
    for part in images.split(figures.BATCH):
        reading = judge(part)
        yield from zip(judge.names(reading), reading.features.double().numpy())


def frechet(first: np.ndarray, second: np.ndarray) -> float:
    """Distance of the normal laws fitted to features [n, d] and [m, d]: |difference of means|² + that of spreads."""
    one, other = np.cov(first, rowvar=False), np.cov(second, rowvar=False)
    values, vectors = np.linalg.eigh(one)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    mixed = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ other @ root), 0)).sum()
    distance = np.square(first.mean(0) - second.mean(0)).sum() + np.trace(one) + np.trace(other) - 2 * mixed
    return max(0.0, float(distance))


def difference(values: np.ndarray, others: np.ndarray) -> Difference:
    """Mean of values - others, pair by pair; the resampling is seeded, so a file can be made again."""
    change = np.asarray(values, float) - np.asarray(others, float)
    means = np.random.default_rng(0).choice(change, (RESAMPLES, len(change))).mean(1)
    return Difference(float(change.mean()), *map(float, np.percentile(means, [2.5, 97.5])))


@dataclass(frozen=True)
class Read:
    """A method's pictures as the judge read them. hits: [n, 2] object and place as asked; features: [n, d]."""

    drawn: list[Drawn]
    hits: np.ndarray
    features: np.ndarray

    @property
    def fidelity(self) -> np.ndarray:
        """[n] of each picture: 0, a half or 1."""
        return self.hits.mean(1)

    @property
    def nats(self) -> np.ndarray:
        return np.array([one.log_likelihood for one in self.drawn])


def read(drawn: list[Drawn], asked: list[Task], tokenizer: PatchTokenizer, judge: SceneClassifier) -> Read:
    names, features = zip(*readings(drawn, tokenizer, judge))
    hits = [(seen == task.name, place == task.place) for (seen, place), task in zip(names, asked)]
    return Read(drawn, np.array(hits, float), np.array(features))


def point(entrant: Entrant, found: Read, reference: Read) -> Point:
    n = len(found.drawn)
    return Point(
        pipeline=entrant.pipeline,
        settings=entrant.settings,
        nfe=float(np.mean([one.nfe for one in found.drawn])),
        accepted_length=float(np.mean([one.accepted_length for one in found.drawn])),
        infidelity=float(np.mean([one.infidelity for one in found.drawn])),
        object=figures.wilson(float(found.hits[:, 0].sum()), n),
        place=figures.wilson(float(found.hits[:, 1].sum()), n),
        fidelity=figures.wilson(float(found.fidelity.sum()), n),
        fidelity_change=difference(found.fidelity, reference.fidelity),
        log_likelihood=float(found.nats.mean()),
        log_likelihood_change=difference(found.nats, reference.nats),
        frechet=frechet(found.features, reference.features),
    )


def method(base: ARImagePipeline, entrant: Entrant) -> ARImagePipeline:
    """An entrant over the weights of `base`."""
    return getattr(pipelines, entrant.pipeline)(**base.components, settings=entrant.settings)


def measure(asked: dict[str, Entrant], options: argparse.Namespace) -> dict:
    """Draw what is missing, read all pictures; the record as it goes into the JSON file."""
    base = opened(options.model)
    tokenizer = PatchTokenizer.from_pretrained(options.model / "vqvae").float().eval()
    judge = SceneClassifier.from_pretrained(options.judge).float().eval()
    todo = quality.tasks(options.images, options.seed)

    def pictures(name: str, entrant: Entrant, seed: int) -> Read:
        pipe = method(base, entrant)
        return read(draw(pipe, todo, options.keep / file_of(pipe, seed), seed, name), todo, tokenizer, judge)

    found = {name: pictures(name, entrant, options.seed) for name, entrant in asked.items()}
    again = pictures("ar, other seeds", asked[REFERENCE], options.seed + AGAIN)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "model": options.model.name,
        "weights_sha256": base.weights_sha256,
        "machine": quality.machine(base),
        "seed": options.seed,
        "images": options.images,
        "sampling": base.sampling.to_dict(),
        "again": point(asked[REFERENCE], again, found[REFERENCE]),  # AR with other seeds: what chance alone does
        "methods": {name: point(entrant, found[name], found[REFERENCE]) for name, entrant in asked.items()},
    }


def report(record: dict) -> str:
    """A line a method."""
    lines = [f"{'method':44} {'passes':>6} {'acc.':>5} {'infid.':>6}  fidelity  change against AR     nats  Fréchet"]
    for name, one in {**record["methods"], "ar, other seeds": record["again"]}.items():
        change = one.fidelity_change
        counts = f"{one.nfe:6.0f} {one.accepted_length:5.2f} {one.infidelity:6.3f}"
        spread = f"{100 * change.mean:+.1f} ({100 * change.low:+.1f} to {100 * change.high:+.1f})"
        lines.append(
            f"{name:44} {counts}  {one.fidelity.share:8.1%}  {spread:20} {one.log_likelihood:6.3f}  {one.frechet:.3f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what methods cost in their pictures.")
    parser.add_argument("--methods", nargs="+", default=[REFERENCE], help=METHODS_HELP)
    parser.add_argument("--images", type=int, default=1000, help="pictures a method")
    parser.add_argument("--seed", type=int, default=0, help="of the first picture; the next has the next seed")
    parser.add_argument("--model", type=Path, default=EMBEDDED, help="a model folder")
    parser.add_argument("--judge", type=Path, default=JUDGE, help="folder of the classifier")
    parser.add_argument("--keep", type=Path, default=scenes.CACHE / "fidelity", help="folder of drawn tokens")
    parser.add_argument("--out", type=Path, default=RESULTS / "fidelity.json", help="JSON file")
    parser.set_defaults(sheet=None)
    options = parser.parse_args()
    asked = entrants(options.methods)
    quality.check(options)
    record = measure(asked, options)
    options.out.write_text(json.dumps(record, indent=2, ensure_ascii=False, default=dataclasses.asdict) + "\n")
    print(f"{report(record)}\n\nWritten to {options.out}.")


if __name__ == "__main__":
    command(main)
