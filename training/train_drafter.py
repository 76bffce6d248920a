"""Train the head that drafts for a trained transformer: `torchrun --nproc_per_node 2 -m training.train_drafter`.

The target reads each fresh scene once; what it read is kept and trained on several times. Heads are EAGLE-1's (Li et
al. 2024, arXiv:2401.15077) or EAGLE-3's (Li et al. 2025, arXiv:2503.01840). Starts from --resume when given: weights
alone are enough to go on. Processes work alone and average their weights every few steps (local SGD).
"""

import argparse
import json

import numpy as np
import torch
from accelerate import Accelerator
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from pipelines.models.patch_tokenizer import PatchTokenizer
from pipelines.primitives.distributions import Warp
from training import command, new_folder, positive_float, positive_int, saved_folder, saved_model, scenes
from training.draft_heads import HEADS, Head, head_over, saved_head
from training.draft_losses import REACHES, lesson
from training.draft_quality import Quality, measure
from training.draft_reader import Reader, Target
from training.muon import Muon
from training.sampling import default_sampling
from training.timed_loop import TimedLoop
from training.train_transformer import make_batch


HELD_OUT = 8  # captions to measure on
DECAY_FROM = 0.5  # share of the time before the rate falls


def optimizers(head: Head, scale: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside; AdamW for norms, biases and a head of logits of its own."""
    trained = {name: weight for name, weight in head.named_parameters() if weight.requires_grad}
    inner = {name for name, weight in trained.items() if weight.ndim == 2 and name != "head.weight"}
    return [
        Muon([trained[name] for name in trained if name in inner], lr=0.02 * scale),
        torch.optim.AdamW(
            [trained[name] for name in trained if name not in inner],
            lr=2e-3 * scale,
            betas=(0.9, 0.95),
            weight_decay=0,
        ),
    ]


def report(
    head: Head,
    target: Target,
    vq: PatchTokenizer,
    text: PreTrainedTokenizerFast,
    sampling: tuple[float, Warp],
    count: int = HELD_OUT,
) -> Quality:
    """On held-out pairs, the same in every run."""
    rng = np.random.default_rng([4, 1])
    made = [scenes.sample(rng, True) for _ in range(count)]
    captions = [scenes.caption(scene, rng) for scene in made]
    batch = make_batch(made, vq, text, 0)
    return measure(head.eval(), target.transformer, target.text_encoder, text, captions, batch.tokens, *sampling)


def started(args: argparse.Namespace, target: Target) -> Head:
    """A fresh head, or the saved one to go on from. Raises ValueError where that is of another kind."""
    if not args.resume:
        return head_over(args.head, target.transformer, args.width, args.ffn_dim)
    head = saved_head(args.resume)
    if not isinstance(head, HEADS[args.head]):
        raise ValueError(
            f"`--resume` must hold an {HEADS[args.head].__name__}, as `--head {args.head}` wants, "
            f"got an {type(head).__name__}."
        )
    return head


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    cache = scenes.CACHE
    parser.add_argument("--head", choices=HEADS, default="eagle1", help="the kind of head")
    parser.add_argument("--minutes", type=positive_float, default=20.0)
    parser.add_argument(
        "--tokenizer", type=saved_folder, default=str(cache / "tokenizer"), help="the target's PatchTokenizer"
    )
    parser.add_argument("--model", type=saved_model, default=str(cache / "transformer"), help="folder of the target")
    parser.add_argument("--resume", type=saved_folder, help="folder of a saved head to go on from")
    parser.add_argument("--out", type=new_folder, default=cache / "drafter")
    parser.add_argument("--width", type=positive_int, help="of an EAGLE-1 head's layer; default: the target's")
    parser.add_argument(
        "--ffn_dim", type=positive_int, help="default: the target's, or two thirds of 4 x another width"
    )
    parser.add_argument("--batch", type=positive_int, default=8, help="pictures a step and process")
    parser.add_argument(
        "--redundancy",
        choices=REACHES,
        default="none",
        help="which states count twice: those that come again in a window, or later",
    )
    parser.add_argument("--lr_scale", type=positive_float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args, accelerator = options(), Accelerator()
    torch.manual_seed(args.seed + accelerator.process_index)
    vq = PatchTokenizer.from_pretrained(args.tokenizer).float().to(accelerator.device).eval()
    text = AutoTokenizer.from_pretrained(args.model / "tokenizer")
    target = Target(args.model, with_taps=args.head == "eagle3").to(accelerator.device)
    head = started(args, target).to(accelerator.device).train()
    trained, frozen = accelerator.prepare(head), target.transformer.head
    steppers = optimizers(head, args.lr_scale)
    reader = Reader(target, vq, text, args.batch, [args.seed, 5, accelerator.process_index])
    with TimedLoop(accelerator, trained, steppers, args.minutes, DECAY_FROM) as loop:
        while loop.goes_on():
            loss, told = lesson(trained, head, frozen, reader.next(), REACHES[args.redundancy])
            accelerator.backward(loss)
            loop.step()
            if loop.tells:
                pictures = loop.count * args.batch * accelerator.num_processes
                found = ", ".join(f"{name} {value:.4f}" for name, value in told.items())
                print(f"{loop.seconds:.0f} s, {pictures} pictures, {found}", flush=True)
            if loop.saves():
                head.save_pretrained(args.out)
                quality = report(head, target, vq, text, default_sampling(args.model))
                print(json.dumps(quality.to_dict()), flush=True)
                head.train()
    accelerator.end_training()


if __name__ == "__main__":
    command(main)
