"""What drafting heads trained on equal terms are worth: are their guesses kept, and what do they draw alone?

    python -m training.compare_drafters
    python -m benchmarks.drafters --images 24

Reads the heads and figures that the first command leaves under --heads. Drawn tokens are kept there too, so a run that
was cut short goes on where it was. A head that draws alone decides every token but the first; it reads the target's
features of its own tokens every few of them, or never.
"""

import argparse
import datetime
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import PartialState
from torch import nn

import pipelines
from benchmarks import figures, quality
from benchmarks.fidelity import log_likelihood
from benchmarks.quality import JUDGE, Task
from benchmarks.record import RESULTS, command
from benchmarks.run import EMBEDDED
from pipelines.base import ARImagePipeline
from pipelines.models.eagle import check_fit
from pipelines.models.patch_tokenizer import PatchTokenizer
from pipelines.models.scene_classifier import SceneClassifier
from pipelines.pipeline_speculative import HEADS
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.tree import EMPTY, chain
from training import scenes


LEDGER = "heads.jsonl"
NEVER = 10**6
HEARD = {"every 5 tokens": 5, "never": NEVER}  # how often a head that draws alone reads the target's features
SHIPPED = "shipped"


@dataclass(frozen=True)
class Spread:
    """Mean over seeds, the least and the most."""

    mean: float
    low: float
    high: float


def spread(values: list[float]) -> Spread:
    return Spread(float(np.mean(values)), min(values), max(values))


@torch.inference_mode()
def drawn_alone(
    pipe: ARImagePipeline, kind: str, head: nn.Module, prompt: str, generator: torch.Generator, heard: int
) -> list[int]:
    """Tokens of a picture of which every guess of a head stays; only the first is the target's.

    heard: guesses after which the head reads what the target makes of them, in place of its own features.
    """
    sampling, layout, chance = pipe.sampling, pipe.layout(), Chance(generator)
    warp = Warp(sampling.temperature, sampling.top_k, sampling.top_p)
    session = pipe.model.open(pipe.encode_prompt(prompt), sampling.guidance_scale, warp, layout)
    run = HEADS[kind][1](head, session)
    tokens = chance.categorical(session.score(EMPTY).probs).tolist()
    session.commit(EMPTY, [], tokens[0])
    features = session.prefix_taps if session.keep_taps else session.prefix_hidden
    new = [0] * (features.shape[1] - 1) + tokens
    while room := min(heard, layout.length - len(tokens)):
        law, guesses = run.extend(new, features), []
        for depth in range(1, room + 1):
            guesses += chance.categorical(law).tolist()
            if depth < room:
                law = run.step(guesses[-1:], [0], depth)
        tokens += guesses
        if len(tokens) < layout.length:
            draft = chain(guesses[:-1], law.expand(room - 1, -1))
            scores = session.score(draft)
            session.commit(draft, list(range(room - 1)), guesses[-1])
            features, new = scores.taps if session.keep_taps else scores.hidden, guesses
    return tokens


@dataclass(frozen=True)
class Drawn:
    """A picture of a head. tokens: [T]; nats: a token, of the target's guided law at temperature 1, unfiltered."""

    tokens: list[int]
    nats: float


def pictures(
    pipe: ARImagePipeline, kind: str, head: nn.Module, asked: list[Task], keep: Path, heard: int
) -> list[Drawn]:
    """The tasks' pictures: read from a file in `keep`, or drawn and added to it."""
    facts = [quality.drawing_id(pipe, 0), pipelines.models.weights.sha256({"draft_model": head}), heard]
    path = keep / (hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16] + ".jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = map(json.loads, path.read_text().splitlines() if path.exists() else [])
    drawn = {index: Drawn(*rest) for index, *rest in lines}
    with path.open("a") as file:
        for task in asked:
            if task.index not in drawn:
                generator = torch.Generator().manual_seed(task.index)
                tokens = drawn_alone(pipe, kind, head, task.prompt, generator, heard)
                drawn[task.index] = Drawn(tokens, log_likelihood(pipe, task.prompt, tokens))
                file.write(json.dumps([task.index, tokens, drawn[task.index].nats]) + "\n")
                file.flush()
    return [drawn[task.index] for task in asked]


def trained_heads(folder: Path) -> dict[str, list[dict]]:
    """Lines of the ledger by name, one of each seed. Raises ValueError where there is none."""
    path = folder / LEDGER
    if not path.is_file():
        raise ValueError(
            f"`--heads` must be the folder that training.compare_drafters wrote; {folder} has no {LEDGER}."
        )
    lines = {(line["name"], line["seed"]): line for line in map(json.loads, path.read_text().splitlines())}
    names = dict.fromkeys(name for name, _ in lines)
    return {name: [line for (of, _), line in lines.items() if of == name] for name in names}


def shipped_quality(folder: Path) -> dict:
    """How well the model's own head foretells the target. Raises ValueError where that was not measured."""
    path = folder / f"{SHIPPED}.json"
    if not path.is_file():
        raise ValueError(f"`--heads` must hold {path.name}; training.compare_drafters adds it, trained heads stay.")
    return json.loads(path.read_text())


def summary(lines: list[dict]) -> dict:
    """What training told of one kind of head, over its seeds."""
    measured = {key: [line["quality"][key] for line in lines] for key in lines[0]["quality"]}
    means = {key: np.mean(rows, 0).round(3).tolist() for key, rows in measured.items() if key != "accepted_length"}
    return {
        "seeds": len(lines),
        "pictures": lines[0]["steps"] * lines[0]["batch"],
        "steps": lines[0]["steps"],
        "trained_weights": lines[0]["trained_weights"],
        "processor_seconds": spread([line["processor_seconds"] for line in lines]),
        "flagged": spread([line["flagged"] for line in lines]),
        "accepted_length": spread(measured["accepted_length"]),
        **means,
    }


def measure(options: argparse.Namespace) -> dict:
    """The record as it goes into the JSON file."""
    device = PartialState().device
    pipe = pipelines.ARPipeline.from_pretrained(options.model, dtype=torch.float32).to(device)
    tokenizer = PatchTokenizer.from_pretrained(options.model / "vqvae").float().eval()
    judge = SceneClassifier.from_pretrained(options.judge).float().eval()
    asked, heads = quality.tasks(options.images, 0), trained_heads(options.heads)
    known = shipped_quality(options.heads)

    def drawn_by(kind: str, of: list[nn.Module]) -> dict[str, dict]:
        """Read back from what heads of several seeds draw alone; nats are spread over the seeds."""
        found = {}
        for name, heard in HEARD.items():
            sets = [pictures(pipe, kind, head, asked, options.heads / "drawn", heard) for head in of]
            nats = spread([float(np.mean([one.nats for one in drawn])) for drawn in sets])
            found[name] = read_back([one.tokens for drawn in sets for one in drawn]) | {"nats": nats}
        return found

    def read_back(drawn: list[list[int]]) -> dict:
        tokens = torch.tensor(drawn).view(len(drawn), *[pipe.transformer.config.grid_size] * 2)
        names = [(task.name, task.place) for task in asked] * (len(drawn) // len(asked))
        return figures.read_back(names, figures.read(judge, quality.decode(tokenizer, tokens)))

    def loaded(kind: str, line: dict) -> nn.Module:
        head = HEADS[kind][0].from_pretrained(options.heads / line["folder"]).float().eval().to(device)
        check_fit(head, HEADS[kind][0], pipe.transformer)
        return head

    found = {}
    for name, lines in heads.items():
        kind = lines[0]["kind"]
        found[name] = summary(lines) | {"alone": drawn_by(kind, [loaded(kind, line) for line in lines])}
    own = next(kind for kind, (of, _) in HEADS.items() if isinstance(pipe.draft_model, of))
    ar = quality.draw(pipe, asked, options.keep / f"{quality.drawing_id(pipe, 0)}.jsonl", 0).flatten(1).tolist()
    nats = spread([log_likelihood(pipe, task.prompt, tokens) for task, tokens in zip(asked, ar)])
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "model": options.model.name,
        "weights_sha256": pipe.weights_sha256,
        "machine": quality.machine(pipe),
        "images": options.images,  # a head and seed
        "sampling": pipe.sampling.to_dict(),
        "ar": read_back(ar) | {"nats": nats.mean},
        SHIPPED: {"alone": drawn_by(own, [pipe.draft_model]), "quality": known},
        "heads": found,
    }


def report(record: dict) -> str:
    """A line a kind of head."""
    lines = [
        f"{'head':18} {'seconds':>7} {'flagged':>7}  {'accepted length':23}"
        + "".join(f"  alone, hearing {heard}: fidelity, nats" for heard in HEARD)
    ]
    for name, one in {**record["heads"], SHIPPED: record[SHIPPED]}.items():
        told = ""
        if "seeds" in one:
            length = one["accepted_length"]
            told = f"{one['processor_seconds'].mean:7.0f} {one['flagged'].mean:7.0%}"
            told += f"  {length.mean:.3f} ({length.low:.3f} to {length.high:.3f})"
        alone = [f"{part['fidelity'].share:6.1%} {part['nats'].mean:6.2f}" for part in one["alone"].values()]
        lines.append(f"{name:18} {told:39}  {'  '.join(alone)}")
    ar = record["ar"]
    return "\n".join([*lines, f"AR draws the same prompts with {ar['fidelity'].share:.1%} and {ar['nats']:.2f} nats."])


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare drafting heads that were trained on equal terms.")
    parser.add_argument("--heads", type=Path, default=scenes.CACHE / "drafters", help="folder of compare_drafters")
    parser.add_argument("--images", type=int, default=24, help="pictures a head")
    parser.add_argument("--model", type=Path, default=EMBEDDED, help="a model folder")
    parser.add_argument("--judge", type=Path, default=JUDGE, help="folder of the classifier")
    parser.add_argument("--out", type=Path, default=RESULTS / "drafters.json", help="JSON file")
    parser.set_defaults(seed=0, sheet=None, keep=scenes.CACHE / "quality")
    options = parser.parse_args()
    quality.check(options)
    record = measure(options)
    options.out.write_text(json.dumps(record, indent=2, ensure_ascii=False, default=asdict) + "\n")
    print(f"{report(record)}\n\nWritten to {options.out}.")


if __name__ == "__main__":
    command(main)
