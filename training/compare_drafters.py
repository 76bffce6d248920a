"""Train drafting heads on equal terms: `python -m training.compare_drafters`.

Every head of a seed is trained from scratch on the same pictures in the same order, as many steps as any other, and
measured on the same held-out captions. A head's folder and its line in heads.jsonl are kept under --out as soon as it
is done, so a run that was cut short goes on where it was. At the end the model's own head is measured likewise, into
shipped.json. `benchmarks.drafters` draws with the heads and sums up.
"""

import argparse
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from transformers import AutoTokenizer

from pipelines.models.patch_tokenizer import PatchTokenizer
from training import command, new_folder, positive_int, saved_folder, saved_model, scenes
from training.draft_heads import Head, head_over, saved_head
from training.draft_losses import REACHES, lesson
from training.draft_quality import BINS
from training.draft_reader import Read, Reader, Target
from training.sampling import default_sampling
from training.timed_loop import TimedLoop
from training.train_drafter import DECAY_FROM, optimizers, report


LEDGER = "heads.jsonl"
CAPTIONS = 8  # to measure on


@dataclass(frozen=True)
class Contender:
    """A way to build and train a head. wide: how many times as wide as the target; redundancy: what counts twice."""

    kind: str
    redundancy: str = "none"
    wide: int = 1

    @property
    def name(self) -> str:
        width = f"-x{self.wide}" if self.wide > 1 else ""
        return f"{self.kind}{width}-{self.redundancy}"


CONTENDERS = (
    Contender("eagle1"),
    Contender("eagle1", "window"),
    Contender("eagle1", "later"),
    Contender("eagle3"),
    Contender("eagle3", "window"),
    Contender("eagle1", wide=2),
)


def done(ledger: Path, steps: int, batch: int) -> set[tuple[str, int]]:
    """Name and seed of the heads trained so far, by so many steps of so many pictures."""
    lines = map(json.loads, ledger.read_text().splitlines() if ledger.exists() else [])
    return {(line["name"], line["seed"]) for line in lines if (line["steps"], line["batch"]) == (steps, batch)}


def taught(contender: Contender, target: Target, reads: Iterable[Read], steps: int, seed: int) -> tuple[Head, dict]:
    """A head trained from scratch on each batch once, and facts of its training."""
    accelerator = Accelerator()
    torch.manual_seed(seed)
    width = contender.wide * target.transformer.config.dim if contender.wide > 1 else None
    head = head_over(contender.kind, target.transformer, width, None).to(accelerator.device).train()
    trained, frozen = accelerator.prepare(head), target.transformer.head
    start, found = time.process_time(), []
    with TimedLoop(accelerator, trained, optimizers(head, 1.0), 1.0, DECAY_FROM, steps) as loop:
        for read in reads:
            loop.goes_on()
            loss, told = lesson(trained, head, frozen, read, REACHES[contender.redundancy])
            accelerator.backward(loss)
            loop.step()
            found.append(told)
    facts = {
        "processor_seconds": round(time.process_time() - start, 1),
        "trained_weights": sum(weight.numel() for weight in head.parameters() if weight.requires_grad),
        "flagged": sum(told["flagged"] for told in found) / len(found),
        "last": {name: sum(told[name] for told in found[-16:]) / len(found[-16:]) for name in found[0]},
    }
    return head.eval(), facts


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=saved_model, default="assets/emoji-scenes", help="folder of the target")
    parser.add_argument("--tokenizer", type=saved_folder, default="assets/emoji-scenes/vqvae")
    parser.add_argument("--seeds", type=positive_int, default=3)
    parser.add_argument("--steps", type=positive_int, default=144)
    parser.add_argument("--batch", type=positive_int, default=2, help="pictures a step")
    parser.add_argument("--out", type=new_folder, default=scenes.CACHE / "drafters")
    return parser.parse_args()


def main() -> None:
    args = options()
    device, ledger = Accelerator().device, args.out / LEDGER
    vq = PatchTokenizer.from_pretrained(args.tokenizer).float().to(device).eval()
    text = AutoTokenizer.from_pretrained(args.model / "tokenizer")
    target = Target(args.model, with_taps=True).to(device)
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in range(args.seeds):
        trained = done(ledger, args.steps, args.batch)
        missing = [one for one in CONTENDERS if (one.name, seed) not in trained]
        reader = Reader(target, vq, text, args.batch, [seed, 7])
        reads = [reader.fresh() for _ in range(args.steps)] if missing else []
        for contender in missing:
            head, facts = taught(contender, target, reads, args.steps, seed)
            folder = f"{contender.name}-{seed}"
            head.save_pretrained(args.out / folder)
            quality = report(head, target, vq, text, default_sampling(args.model), CAPTIONS)
            line = {"name": contender.name, "seed": seed, "steps": args.steps, "batch": args.batch, "folder": folder}
            line |= asdict(contender) | facts | {"quality": quality.to_dict()}
            with ledger.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)
    if (args.model / "draft_model").is_dir():
        head = saved_head(args.model / "draft_model").to(device)
        quality = report(head, target, vq, text, default_sampling(args.model), CAPTIONS)
        told = quality.to_dict() | {"entropy_edges": list(BINS)}
        (args.out / "shipped.json").write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    command(main)
