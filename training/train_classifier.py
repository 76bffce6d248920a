"""Train the judge of drawn scenes: `accelerate launch -m training.train_classifier --minutes 12`.

Half of what it sees are fresh scenes, half are scenes after the tokenizer at --tokenizer, which is how the embedded
model draws. Objects and places are drawn independently, so that no pair is strange to it. Starts from --resume
(a saved classifier) when given.
"""

import argparse
import copy
import time
from collections import deque
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor

from pipelines.models.patch_tokenizer import PatchTokenizer
from pipelines.models.scene_classifier import Reading, SceneClassifier
from training import command, new_folder, positive_float, positive_int, saved_folder, scenes


NOTHING = "none"  # the name of an empty place's object
OBJECT_NAMES = [*scenes.OBJECT_NAMES, NOTHING]
PLACE_NAMES = list(scenes.PLACE_NAMES)
EMBEDDED = Path(__file__).parent.parent / "assets" / "emoji-scenes"
SMOOTHING = 0.05  # of labels
NOISE = 0.08  # largest standard deviation, pictures reach from -1 to 1
POOL = 2048  # reconstructions kept
REUSE = 4  # times a reconstruction is seen, for it costs more than a scene


def batch(rng: np.random.Generator, size: int) -> tuple[Tensor, Tensor]:
    """Scenes [size, 3, SIDE, SIDE] float32 in [-1, 1], and labels [size, 2]: indices of object and place."""
    labels = torch.from_numpy(rng.integers(0, (len(OBJECT_NAMES), len(PLACE_NAMES)), (size, 2)))
    names = [(*scenes.OBJECT_NAMES, None)[index] for index in labels[:, 0].tolist()]
    places = [PLACE_NAMES[index] for index in labels[:, 1].tolist()]
    pixels = np.stack([scenes.draw(name, place, rng).pixels for name, place in zip(names, places)])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1, labels


@torch.inference_mode()
def reconstruct(tokenizer: PatchTokenizer, images: Tensor) -> Tensor:
    """Pictures [B, 3, H, W] after encoding and decoding."""
    return tokenizer.decode(tokenizer.encode(images))


def roughen(images: Tensor) -> Tensor:
    """Blur each picture by an amount of its own, then add noise of an amount of its own."""
    blur, noise = torch.rand(2, len(images), 1, 1, 1, device=images.device)
    soft = F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    return torch.lerp(images, soft, blur) + NOISE * noise * torch.randn_like(images)


def loss_of(reading: Reading, labels: Tensor) -> Tensor:
    """Cross-entropy of object and of place, together."""
    return sum(
        F.cross_entropy(logits, labels[:, column], label_smoothing=SMOOTHING)
        for column, logits in enumerate((reading.objects, reading.places))
    )


@torch.no_grad()
def accuracy(model: SceneClassifier, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """Shares of pictures [B, 3, H, W] whose object, and whose place, is read right. labels: [B, 2]."""
    model.eval()
    readings = [model(part) for part in images.split(64)]
    model.train()
    objects = torch.cat([reading.objects.argmax(-1) for reading in readings])
    places = torch.cat([reading.places.argmax(-1) for reading in readings])
    return (objects == labels[:, 0]).float().mean().item(), (places == labels[:, 1]).float().mean().item()


def save(model: SceneClassifier, folder: Path) -> None:
    """In half precision: the judge is shipped, and nothing is lost by it."""
    shipped = copy.deepcopy(model).half()
    shipped.register_to_config(_name_or_path=folder.name)  # not the folder that training started from
    shipped.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=positive_float, default=12.0)
    parser.add_argument(
        "--tokenizer", type=saved_folder, default=str(EMBEDDED / "vqvae"), help="folder of a saved tokenizer"
    )
    parser.add_argument("--resume", type=saved_folder, help="folder of a saved classifier to go on from")
    parser.add_argument("--out", type=new_folder, default=scenes.CACHE / "classifier")
    parser.add_argument("--batch", type=positive_int, default=32)
    parser.add_argument("--lr", type=positive_float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.batch < 2:
        parser.error("argument --batch: must be at least 2, one half are fresh scenes, one half reconstructed ones.")

    accelerator = Accelerator()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed + 1)
    tokenizer = PatchTokenizer.from_pretrained(args.tokenizer).float().eval().to(accelerator.device)
    if args.resume:
        model = SceneClassifier.from_pretrained(args.resume).float()
    else:
        model = SceneClassifier(OBJECT_NAMES, PLACE_NAMES)
    model.to(accelerator.device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2)
    optimizer = accelerator.prepare(optimizer)

    def fresh(size: int) -> tuple[Tensor, Tensor]:
        images, labels = batch(rng, size)
        return images.to(accelerator.device), labels.to(accelerator.device)

    probe, probe_labels = fresh(512)
    probe_made = torch.cat([reconstruct(tokenizer, part) for part in probe.split(64)])
    pool = deque(maxlen=POOL)  # of reconstructions [3, H, W] and their labels [2]

    def progress() -> str:
        scene, made = accuracy(model, probe, probe_labels), accuracy(model, probe_made, probe_labels)
        return f"scenes: object {scene[0]:.1%} place {scene[1]:.1%}, reconstructed: {made[0]:.1%} {made[1]:.1%}"

    half = args.batch // 2
    start, saved, step = time.monotonic(), time.monotonic(), 0
    while (elapsed := (time.monotonic() - start) / (60 * args.minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = args.lr * min(1, (step + 1) / 50) * (1 - elapsed)
        images, labels = fresh(half)
        share = half // REUSE
        pool.extend(zip(reconstruct(tokenizer, images[:share]), labels[:share]))
        made, made_labels = zip(*(pool[index] for index in rng.integers(0, len(pool), half)))
        images, labels = torch.cat([images, torch.stack(made)]), torch.cat([labels, torch.stack(made_labels)])
        loss = loss_of(model(roughen(images).contiguous(memory_format=torch.channels_last)), labels)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        step += 1
        if step % 100 == 0:
            print(f"step {step} {60 * elapsed * args.minutes:.0f} s loss {loss.item():.3f} {progress()}", flush=True)
        if time.monotonic() - saved > 120:
            save(model, args.out)
            saved = time.monotonic()
    save(model, args.out)
    print(f"{progress()}, saved in {args.out}")


if __name__ == "__main__":
    command(main)
