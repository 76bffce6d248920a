"""Train the transformer on fresh scenes: `torchrun --nproc_per_node 2 -m training.train_transformer`, two processes.

Needs a trained tokenizer. Starts from --resume (a saved model folder, fewer layers allowed) when given: weights alone
are enough to go on. Processes work alone and average their weights every few steps (local SGD).
"""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.local_sgd import LocalSGD
from PIL import Image
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedTokenizerFast, T5Config, T5EncoderModel

from pipelines.models.llamagen import LlamaGenTransformer
from pipelines.models.llamagen_family import LlamaGen
from pipelines.models.patch_tokenizer import PatchTokenizer
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.tree import EMPTY
from training import scenes, words
from training.muon import Muon


TEXT_LENGTH = 8  # words a prompt may keep
DROPPED_CAPTIONS = 0.1
# What an object is, its words say; once its upper rows stand, the rows below follow from them. So these rows count
# more. Where they begin is known from the tokens before, so the weights do not bend the law that is learned.
TOP_TOKENS = 48
TOP_WEIGHT = 4.0
HINT_WEIGHT = 0.1
GUIDANCE = 3.0  # of the sample sheet
SHEET = [
    *("a panda in the snow", "a rocket in the night sky", "an apple on a wooden table", "a taxi by a brick wall"),
    *("a penguin on the water", "a cactus on sand", "a hamburger on a yellow background", "a fox in the forest"),
]
SAVE_SECONDS = 300
AVERAGE_EVERY = 16  # steps between two averages of the processes' weights


@dataclass(frozen=True)
class Batch:
    ids: Tensor  # [B, P] words, padding first
    named: Tensor  # [B, P] bool, True where the word names an object
    mask: Tensor  # [B, P] bool, True where there is a word
    tokens: Tensor  # [B, T] of the picture
    opaque: Tensor  # [B, T] bool: mostly covered by the object


class Captioned(nn.Module):
    """Text encoder and transformer as one module, so that one backward pass trains both."""

    def __init__(self, text_encoder: T5EncoderModel, transformer: LlamaGenTransformer):
        super().__init__()
        self.text_encoder, self.transformer = text_encoder, transformer

    def forward(self, ids: Tensor, mask: Tensor, tokens: Tensor, uncond: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of every token of the picture, [B, T, V], and what the head reads at the text rows, [B, P - 1, V]."""
        features = self.text_encoder(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        output = self.transformer(features * mask[..., None], mask, tokens, uncond)
        return output.logits, self.transformer.head(output.hidden[:, : mask.shape[1] - 1])


def encode_captions(tokenizer: PreTrainedTokenizerFast, captions: list[str]) -> tuple[Tensor, Tensor]:
    """Word ids [B, P] and mask [B, P] bool, valid words last as LlamaGen wants them."""
    coded = tokenizer(captions, padding="max_length", truncation=True, max_length=TEXT_LENGTH, return_tensors="pt")
    length = coded.attention_mask.sum(1, keepdim=True)
    order = (torch.arange(TEXT_LENGTH) + length) % TEXT_LENGTH
    return coded.input_ids.gather(1, order), coded.attention_mask.gather(1, order).bool()


@torch.no_grad()
def make_batch(made: list[scenes.Scene], vq: PatchTokenizer, text: PreTrainedTokenizerFast, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    ids, mask = encode_captions(text, [scenes.caption(s, rng) for s in made])
    pixels = torch.from_numpy(np.stack([s.pixels for s in made])).permute(0, 3, 1, 2).float() / 127.5 - 1
    opaque = torch.from_numpy(np.stack([s.opaque for s in made])).float()[:, None]
    named = torch.isin(ids, torch.tensor(text.convert_tokens_to_ids(list(scenes.OBJECT_NAMES))))
    return Batch(ids, named, mask, vq.encode(pixels).flatten(1), F.avg_pool2d(opaque, scenes.GRID).flatten(1) > 0.5)


def token_losses(logits: Tensor, batch: Batch) -> Tensor:
    """Cross-entropy of every token in nats, [B, T]."""
    return F.cross_entropy(logits.flatten(0, 1), batch.tokens.flatten(), reduction="none").view(batch.tokens.shape)


def picture_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Weighted mean of the token losses."""
    since = batch.opaque.cumsum(1).clamp(max=1).cumsum(1)  # 1 at the object's first token
    weight = 1 + (TOP_WEIGHT - 1) * ((since > 1) & (since <= TOP_TOKENS))
    return (token_losses(logits, batch) * weight).sum() / weight.sum()


def hint_loss(logits: Tensor, batch: Batch, uncond: Tensor) -> Tensor:
    """How badly the row of the object's name foretells which tokens the object is made of.

    Its logits are read by nobody when a picture is drawn. Trained, they put the object's tokens where image rows look,
    which otherwise takes a small model very long to find: of a picture's 370 nats the name tells four.
    """
    share = torch.zeros(len(logits), logits.shape[-1]).scatter_add_(1, batch.tokens, batch.opaque.float())
    share = share / share.sum(1, keepdim=True).clamp(min=1)
    told = -(share[:, None] * logits.log_softmax(-1)).sum(-1)  # [B, P - 1]
    rows = batch.named[:, :-1] & ~uncond[:, None]
    return told[rows].sum() / rows.sum().clamp(min=1)


def grown(start: Path, layers: int) -> LlamaGenTransformer:
    """The saved transformer with as many layers as asked; new ones come after old ones and begin by adding nothing."""
    old = LlamaGenTransformer.from_pretrained(start).float()
    depth = old.config.num_layers
    if depth == layers:
        return old
    model = LlamaGenTransformer.from_config({**old.config, "num_layers": layers})
    place, own = [i * layers // depth for i in range(depth)], model.state_dict()
    for name, weight in old.state_dict().items():
        if name.startswith("layers."):
            _, index, rest = name.split(".", 2)
            name = f"layers.{place[int(index)]}.{rest}"
        own[name].copy_(weight)
    return model


def build(args: argparse.Namespace, num_codes: int) -> tuple[Captioned, PreTrainedTokenizerFast]:
    if args.resume:
        text = AutoTokenizer.from_pretrained(args.resume / "tokenizer")
        encoder = T5EncoderModel.from_pretrained(args.resume / "text_encoder").float()
        return Captioned(encoder, grown(args.resume / "transformer", args.layers)), text
    text = words.tokenizer(TEXT_LENGTH)
    encoder = T5EncoderModel(
        T5Config(
            vocab_size=len(text),
            d_model=128,
            d_kv=32,
            d_ff=256,
            num_layers=2,
            num_heads=4,
            dropout_rate=0.0,
            feed_forward_proj="gated-gelu",
        )
    )
    for name, weight in encoder.named_parameters():
        if name.endswith(("SelfAttention.o.weight", "DenseReluDense.wo.weight")):
            nn.init.zeros_(weight)  # at first a word's features are its own, as different as words can be
    transformer = LlamaGenTransformer(vocab_size=num_codes, dim=args.dim, num_layers=args.layers, num_heads=4,
                                      ffn_dim=704, cls_token_num=TEXT_LENGTH, caption_dim=128,
                                      grid_size=scenes.SIDE // scenes.GRID, text_rope=args.text_rope)  # fmt: skip
    return Captioned(encoder, transformer), text


def optimizers(model: Captioned, scale: float) -> list[torch.optim.Optimizer]:
    inner, others = [], []
    for name, weight in model.transformer.named_parameters():
        (inner if weight.ndim == 2 and name.startswith(("layers.", "condition.")) else others).append(weight)
    groups = [
        {"params": others, "lr": 2e-3 * scale},
        {"params": list(model.text_encoder.parameters()), "lr": 1e-3 * scale},
    ]
    return [Muon(inner, lr=0.02 * scale), torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0)]


@torch.no_grad()
def evaluate(model: nn.Module, sets: dict[str, list[Batch]]) -> dict[str, float]:
    """Mean cross-entropy in nats of object and place tokens of each set."""
    found = {}
    for name, batches in sets.items():
        uncond = torch.zeros(len(batches[0].ids), dtype=torch.bool)
        losses = torch.cat([token_losses(model(b.ids, b.mask, b.tokens, uncond)[0], b) for b in batches])
        opaque = torch.cat([b.opaque for b in batches])
        places = {"all": losses, "object": losses[opaque], "place": losses[~opaque]}
        found |= {f"{name} {where}": round(part.mean().item(), 3) for where, part in places.items()}
    return found


@torch.no_grad()
@torch.compiler.set_stance("force_eager")  # drawing has other shapes; compiling for them would cost minutes
def sheet(family: LlamaGen, captions: list[str]) -> Image.Image:
    """Pictures drawn by plain autoregression at the default sampling, side by side."""
    layout = family.layout(scenes.SIDE, scenes.SIDE)
    pictures = []
    for seed, words_of_one in enumerate(captions):
        chance = Chance(torch.Generator().manual_seed(seed))
        session = family.open(family.condition(words_of_one, None), GUIDANCE, Warp(), layout)
        drawn = []
        while len(drawn) < layout.length:
            drawn.append(int(chance.categorical(session.score(EMPTY).probs[-1:])))
            session.commit(EMPTY, [], drawn[-1])
        pictures.append(family.decode(torch.tensor(drawn).view(1, layout.rows, layout.cols))[0])
    pixels = ((torch.cat(pictures, -1) + 1) * 127.5).round().byte().permute(1, 2, 0)
    return Image.fromarray(pixels.numpy())


def save(model: Captioned, text: PreTrainedTokenizerFast, vq: PatchTokenizer, folder: Path) -> None:
    """Weights, and beside them samples.png with one picture of each of SHEET."""
    model.transformer.save_pretrained(folder / "transformer")
    model.text_encoder.save_pretrained(folder / "text_encoder")
    text.save_pretrained(folder / "tokenizer")
    sheet(LlamaGen(model.transformer, vq, model.text_encoder, text), SHEET).save(folder / "samples.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument(
        "--tokenizer", type=Path, default=scenes.CACHE / "tokenizer", help="folder of the PatchTokenizer"
    )
    parser.add_argument("--resume", type=Path, help="folder of a saved model to go on from")
    parser.add_argument("--out", type=Path, default=scenes.CACHE / "transformer")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr_scale", type=float, default=1.0)
    parser.add_argument("--decay_from", type=float, default=0.5, help="share of the time after which the rate falls")
    parser.add_argument("--text_rope", choices=("zero", "identity"), default="zero")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    accelerator = Accelerator()
    torch.manual_seed(args.seed)
    vq = PatchTokenizer.from_pretrained(args.tokenizer).float()
    model, text = build(args, vq.config.num_codes)
    for layer in model.transformer.layers:
        layer.compile()
    sets = {}
    for name, held_out, count in (("seen", False, 6), ("held-out", True, 3)):
        fixed = np.random.default_rng([1, held_out])
        drawn = [[scenes.sample(fixed, held_out) for _ in range(args.batch)] for _ in range(count)]
        sets[name] = [make_batch(group, vq, text, i) for i, group in enumerate(drawn)]
    steppers = optimizers(model, args.lr_scale)
    rates = [[g["lr"] for g in s.param_groups] for s in steppers]
    trained = accelerator.prepare(model)
    rng = np.random.default_rng([args.seed, 3, accelerator.process_index])
    torch.manual_seed(args.seed + accelerator.process_index)
    start, reported, step, done = time.monotonic(), time.monotonic(), 0, 0.0
    with LocalSGD(accelerator, trained, local_sgd_steps=AVERAGE_EVERY, enabled=accelerator.num_processes > 1) as local:
        while done < 1:
            share = max(0.0, min(1.0, (step + 1) / 60, (1 - done) / (1 - args.decay_from)))
            for stepper, base in zip(steppers, rates):
                for group, lr in zip(stepper.param_groups, base):
                    group["lr"] = lr * share
            drawn = [scenes.sample(rng) for _ in range(args.batch)]
            batch = make_batch(drawn, vq, text, int(rng.integers(2**31)))
            uncond = torch.rand(args.batch) < DROPPED_CAPTIONS
            logits, told = trained(batch.ids, batch.mask, batch.tokens, uncond)
            loss, hint = picture_loss(logits, batch), hint_loss(told, batch, uncond)
            accelerator.backward(loss + HINT_WEIGHT * hint)
            for stepper in steppers:
                stepper.step()
                stepper.zero_grad()
            local.step()
            step += 1
            if step % AVERAGE_EVERY == 0:  # all processes must agree when to stop
                elapsed = torch.tensor((time.monotonic() - start) / (60 * args.minutes))
                done = accelerator.reduce(elapsed, "mean").item()
            if step % 16 == 0 and accelerator.is_main_process:
                pictures = step * args.batch * accelerator.num_processes
                print(
                    f"{60 * args.minutes * done:.0f} s, {pictures} pictures, loss {loss.item():.3f} {hint.item():.3f}",
                    flush=True,
                )
            if (
                step % AVERAGE_EVERY == 0
                and time.monotonic() - reported > SAVE_SECONDS
                and accelerator.is_main_process
            ):
                print(json.dumps(evaluate(model, sets)), flush=True)
                save(model, text, vq, args.out)
                reported = time.monotonic()
    if accelerator.is_main_process:
        print(json.dumps(evaluate(model, sets)), flush=True)
        save(model, text, vq, args.out)
    accelerator.end_training()


if __name__ == "__main__":
    main()
