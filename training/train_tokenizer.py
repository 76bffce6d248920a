"""Train the patch-local tokenizer: `accelerate launch -m training.train_tokenizer --minutes 30`.

Starts from --resume (a saved tokenizer) when given. With --freeze_codes only the decoder learns, so that tokens stay
what they are and a transformer trained on them stays valid.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from PIL import Image
from torch import Tensor

from pipelines.models.patch_tokenizer import PatchTokenizer
from training import command, new_folder, positive_float, positive_int, saved_folder, scenes


def batch(rng: np.random.Generator, size: int) -> Tensor:
    """[size, 3, SIDE, SIDE] float32 in [-1, 1], fresh scenes."""
    pixels = np.stack([scenes.sample(rng).pixels for _ in range(size)])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1


def edges(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., 1:, :] - x[..., :-1, :], x[..., :, 1:] - x[..., :, :-1]


def texture(x: Tensor) -> Tensor:
    """Local energy of what is finer than four pixels: keeps the grain of grass and stone."""
    fine = x - F.interpolate(F.avg_pool2d(x, 4), scale_factor=4, mode="bilinear")
    return (F.avg_pool2d(fine**2, 8) + 1e-4).sqrt()


def picture_loss(made: Tensor, true: Tensor) -> Tensor:
    """L1 + L2 + edges at three scales + local texture energy."""
    loss = F.l1_loss(made, true) + F.mse_loss(made, true) + 0.5 * F.l1_loss(texture(made), texture(true))
    for scale in (1, 2, 4):
        pairs = zip(edges(F.avg_pool2d(made, scale)), edges(F.avg_pool2d(true, scale)))
        loss = loss + 0.5 / 3 * sum(F.l1_loss(a, b) for a, b in pairs)
    return loss


START_COUNT = 0.3  # choices a new code is credited with, so that it lives for some steps


class CodeUpdate:
    """Moves the codes to the mean of what chose them (EMA), and restarts codes nobody chooses."""

    def __init__(self, model: PatchTokenizer, decay: float = 0.98):
        self.model, self.decay = model, decay
        self.count = model.codes.new_full((len(model.codes),), START_COUNT)
        self.total = model.codes * START_COUNT

    @torch.no_grad()
    def step(self, vectors: Tensor, tokens: Tensor) -> None:
        vectors, tokens = vectors.flatten(0, -2), tokens.flatten()
        chosen = torch.zeros_like(self.count).index_add_(0, tokens, torch.ones_like(vectors[:, 0]))
        self.count.mul_(self.decay).add_(chosen, alpha=1 - self.decay)
        self.total.mul_(self.decay).index_add_(0, tokens, vectors, alpha=1 - self.decay)
        dead = self.count < 0.1 * START_COUNT
        if dead.any():
            fresh = vectors[torch.randint(len(vectors), (int(dead.sum()),))]
            self.total[dead], self.count[dead] = fresh * START_COUNT, START_COUNT
        self.model.codes.copy_(F.normalize(self.total, dim=-1))


@torch.no_grad()
def psnr(model: PatchTokenizer, images: Tensor) -> float:
    """Peak signal-to-noise ratio in dB of pictures [B, 3, H, W] in [-1, 1] after encoding and decoding."""
    error = (model.decode(model.encode(images)) - images).square().mean((1, 2, 3))
    return float((10 * torch.log10(4 / error)).mean())


@torch.no_grad()
def save(model: PatchTokenizer, folder: Path, probe: Tensor) -> None:
    model.save_pretrained(folder)
    pairs = torch.cat([probe[:16], model.decode(model.encode(probe[:16]))])
    rows = ((pairs + 1) * 127.5).clamp(0, 255).byte().permute(0, 2, 3, 1).cpu().numpy()
    sheet = np.concatenate([np.concatenate(rows[i : i + 8], 1) for i in range(0, len(rows), 8)], 0)
    Image.fromarray(sheet).save(folder / "samples.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=positive_float, default=30.0)
    parser.add_argument("--resume", type=saved_folder, help="folder of a saved tokenizer to go on from")
    parser.add_argument("--freeze_codes", action="store_true", help="train the decoder alone")
    parser.add_argument("--out", type=new_folder, default=scenes.CACHE / "tokenizer")
    parser.add_argument("--batch", type=positive_int, default=12)
    parser.add_argument("--lr", type=positive_float, default=1.5e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    accelerator = Accelerator()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed + 1)
    probe = batch(np.random.default_rng(12345), 64).to(accelerator.device)
    model = PatchTokenizer.from_pretrained(args.resume).float() if args.resume else PatchTokenizer()
    model.to(accelerator.device, memory_format=torch.channels_last)
    model.encoder.requires_grad_(not args.freeze_codes)
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=args.lr, betas=(0.9, 0.98), weight_decay=1e-4)
    if not args.resume:
        with torch.no_grad():
            seen = model.embed(batch(rng, 64).to(accelerator.device)).flatten(0, -2)
            model.codes.copy_(seen[torch.randperm(len(seen))[: len(model.codes)]])
    codes = CodeUpdate(model)
    optimizer = accelerator.prepare(optimizer)
    start, saved, step = time.monotonic(), time.monotonic(), 0
    while (elapsed := (time.monotonic() - start) / (60 * args.minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = args.lr * min(1, step / 50) * (1 - elapsed)
        images = batch(rng, args.batch).to(accelerator.device, memory_format=torch.channels_last)
        vectors = model.embed(images)
        tokens = model.nearest(vectors)
        hard = model.codes[tokens]
        made = model.decode_vectors(vectors + (hard - vectors).detach())
        loss = picture_loss(made, images)
        if not args.freeze_codes:
            loss = loss + 0.25 * F.mse_loss(vectors, hard) * hard.shape[-1]
        optimizer.zero_grad()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(learning, 1.0)
        optimizer.step()
        if not args.freeze_codes:
            codes.step(vectors.detach(), tokens)
        step += 1
        if step % 50 == 0:
            used = len(torch.unique(model.encode(probe)))
            print(f"step {step} {60 * elapsed * args.minutes:.0f} s loss {loss.item():.4f} "
                  f"psnr {psnr(model, probe):.2f} dB codes {used}", flush=True)  # fmt: skip
        if time.monotonic() - saved > 120:
            save(model, args.out, probe)
            saved = time.monotonic()
    save(model, args.out, probe)
    print(f"psnr {psnr(model, probe):.2f} dB, saved in {args.out}")


if __name__ == "__main__":
    command(main)
