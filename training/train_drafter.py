"""Train the head that drafts for a trained transformer: `torchrun --nproc_per_node 2 -m training.train_drafter`.

The target reads each fresh scene once; its features are kept and trained on several times. Loss of EAGLE-1 (Li et al.
2024, arXiv:2401.15077). Starts from --resume when given: weights alone are enough to go on. Processes work alone and
average their weights every few steps (local SGD).
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedTokenizerFast, T5EncoderModel

from pipelines.models.eagle import EagleHead
from pipelines.models.llamagen import LlamaGenTransformer
from pipelines.models.patch_tokenizer import PatchTokenizer
from training import command, new_folder, positive_float, positive_int, saved_folder, saved_model, scenes
from training.draft_losses import REACHES, cross_entropy, redundant, weighted_mean
from training.draft_quality import Quality, measure
from training.muon import Muon
from training.timed_loop import TimedLoop
from training.train_transformer import DROPPED_CAPTIONS, Batch, make_batch


LOGIT_WEIGHT = 0.1  # of the logits' loss beside the features'
NOISE = 0.2 * 512  # width of the uniform noise on input features, times the rows of a sequence
REUSE = 4  # times a picture is trained on
KEPT = 4096  # pictures whose features are kept, 0.13 MB each at a width of 256
HELD_OUT = 8  # captions to measure on
DECAY_FROM = 0.5  # share of the time before the rate falls


@dataclass(frozen=True)
class Read:
    """Pictures as the target has read them."""

    tokens: Tensor  # [B, T]
    hidden: Tensor  # [B, P + T - 1, D] half precision: what its head reads
    redundant: Tensor  # [B, T - 1] bool: image rows whose state comes again


class Target(nn.Module):
    """Text encoder and transformer, frozen."""

    def __init__(self, folder: Path, reach: int | None) -> None:
        """reach: rows ahead in which a redundant state comes again."""
        super().__init__()
        self.reach = reach
        self.transformer = LlamaGenTransformer.from_pretrained(folder / "transformer").float().eval()
        self.text_encoder = T5EncoderModel.from_pretrained(folder / "text_encoder").float().eval()
        self.requires_grad_(False)

    @torch.no_grad()
    def forward(self, batch: Batch, uncond: Tensor) -> Read:
        features = self.text_encoder(input_ids=batch.ids, attention_mask=batch.mask.long()).last_hidden_state
        output = self.transformer(features * batch.mask[..., None], batch.mask, batch.tokens, uncond)
        image = output.hidden[:, batch.mask.shape[1] :]
        return Read(batch.tokens, output.hidden.half(), redundant(image, self.reach))


def losses(head: nn.Module, frozen: nn.Linear, read: Read, text: int, noise: float) -> tuple[Tensor, Tensor]:
    """Of features (smooth L1) and of logits (cross-entropy of the target's law), means over image rows.

    Of the logits, redundant rows count twice. text: rows whose following token is text; noise: width of the uniform
    noise on the features read.
    """
    hidden = read.hidden.float()
    tokens = F.pad(read.tokens[:, :-1], (text, 0))
    seen = hidden[:, :-1] + noise * (torch.rand_like(hidden[:, :-1]) - 0.5)
    guessed, true = head(tokens, seen)[:, text:], hidden[:, text + 1 :]
    of_logits = cross_entropy(frozen(true).softmax(-1), frozen(guessed))
    return F.smooth_l1_loss(guessed, true), weighted_mean(of_logits, read.redundant)


class Reader:
    """Batches for training: fresh ones, and in between ones read before."""

    def __init__(self, target: Target, vq: PatchTokenizer, text: PreTrainedTokenizerFast, size: int, seed: list[int]):
        self.target, self.vq, self.text, self.size = target, vq, text, size
        self.rng, self.kept, self.drawn = np.random.default_rng(seed), [], 0

    def next(self) -> Read:
        self.drawn += 1
        if self.drawn % REUSE and self.kept:
            return self.kept[self.rng.integers(len(self.kept))]
        made = [scenes.sample(self.rng) for _ in range(self.size)]
        batch = make_batch(made, self.vq, self.text, int(self.rng.integers(2**31)))
        uncond = torch.rand(self.size, device=batch.tokens.device) < DROPPED_CAPTIONS
        read = self.target(batch, uncond)
        self.kept = [*self.kept[-(KEPT // self.size) + 1 :], read]
        return read


def optimizers(head: EagleHead, scale: float) -> list[torch.optim.Optimizer]:
    trained = [weight for weight in head.parameters() if weight.requires_grad]
    matrices = [weight for weight in trained if weight.ndim == 2]
    others = [weight for weight in trained if weight.ndim == 1]
    return [
        Muon(matrices, lr=0.02 * scale),
        torch.optim.AdamW(others, lr=2e-3 * scale, betas=(0.9, 0.95), weight_decay=0),
    ]


def report(head: EagleHead, target: Target, vq: PatchTokenizer, text: PreTrainedTokenizerFast) -> Quality:
    """On held-out pairs, the same in every run."""
    rng = np.random.default_rng([4, 1])
    made = [scenes.sample(rng, True) for _ in range(HELD_OUT)]
    captions = [scenes.caption(scene, rng) for scene in made]
    batch = make_batch(made, vq, text, 0)
    return measure(head.eval(), target.transformer, target.text_encoder, text, captions, batch.tokens)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    cache = scenes.CACHE
    parser.add_argument("--minutes", type=positive_float, default=20.0)
    parser.add_argument(
        "--tokenizer", type=saved_folder, default=str(cache / "tokenizer"), help="the target's PatchTokenizer"
    )
    parser.add_argument("--model", type=saved_model, default=str(cache / "transformer"), help="folder of the target")
    parser.add_argument("--resume", type=saved_folder, help="folder of a saved head to go on from")
    parser.add_argument("--out", type=new_folder, default=cache / "drafter")
    parser.add_argument("--width", type=positive_int, help="of the head's layer; default: the target's")
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
    target = Target(args.model, REACHES[args.redundancy]).to(accelerator.device)
    head = EagleHead.over(target.transformer, args.width, args.ffn_dim)
    if args.resume:
        head = EagleHead.from_pretrained(args.resume).float()
    head.to(accelerator.device).train()
    trained = accelerator.prepare(head)
    steppers = optimizers(head, args.lr_scale)
    reader = Reader(target, vq, text, args.batch, [args.seed, 5, accelerator.process_index])
    rows = head.config.cls_token_num + head.config.grid_size**2
    with TimedLoop(accelerator, trained, steppers, args.minutes, DECAY_FROM) as loop:
        while loop.goes_on():
            read = reader.next()
            of_features, of_logits = losses(trained, head.head, read, head.text_rows, NOISE / rows)
            accelerator.backward(of_features + LOGIT_WEIGHT * of_logits)
            loop.step()
            if loop.tells:
                pictures = loop.count * args.batch * accelerator.num_processes
                found = f"features {of_features.item():.4f}, logits {of_logits.item():.3f}"
                found += f", redundant {read.redundant.float().mean().item():.0%}" if target.reach != 0 else ""
                print(f"{loop.seconds:.0f} s, {pictures} pictures, {found}", flush=True)
            if loop.saves():
                head.save_pretrained(args.out)
                print(json.dumps(report(head, target, vq, text).to_dict()), flush=True)
                head.train()
    accelerator.end_training()


if __name__ == "__main__":
    command(main)
