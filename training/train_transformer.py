"""Train the transformer on fresh scenes: `torchrun --nproc_per_node 2 -m training.train_transformer`, two processes.

Needs a trained tokenizer. Starts from --resume (a saved model folder, fewer layers allowed) when given: weights alone
are enough to go on. Processes work alone and average their weights every few steps (local SGD).
"""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from PIL import Image
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedTokenizerFast, T5Config, T5EncoderModel

from pipelines.models.llamagen import LlamaGenTransformer
from pipelines.models.llamagen_family import LlamaGen
from pipelines.models.patch_tokenizer import PatchTokenizer
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.tree import EMPTY
from training import (
    command,
    fraction,
    new_folder,
    positive_float,
    positive_int,
    saved_folder,
    saved_model,
    scenes,
    words,
)
from training.muon import Muon
from training.timed_loop import TimedLoop


TEXT_LENGTH = 8  # words a prompt may keep
LAYERS = 4  # of a new transformer
DROPPED_CAPTIONS = 0.1
# What an object is, its words say, through the few tokens of its upper edge; the rest follows from them. So the rows
# where it may begin count more, and what comes after its beginning. Both are known from the tokens before, so the
# weights do not bend the law that is learned.
BEGIN_ROWS = range(scenes.TOPS[0] // scenes.GRID, 6)
BEGIN_WEIGHT = 3.0
TOP_TOKENS = 48
TOP_WEIGHT = 4.0
SHORT_ROWS, FULL_EVERY = 7, 4  # most steps train on the upper rows alone, for the same reason; every fourth on all
HINT_WEIGHT = 0.1
GUIDANCE = 2.0  # of the sample sheet
SHEET = [
    *("a panda in the snow", "a rocket in the night sky", "an apple on a wooden table", "a taxi by a brick wall"),
    *("a penguin on the water", "a cactus on sand", "a hamburger on a yellow background", "a fox in the forest"),
]


@dataclass(frozen=True)
class Batch:
    ids: Tensor  # [B, P] words, padding first
    named: Tensor  # [B, P] bool, True where the word names an object
    mask: Tensor  # [B, P] bool, True where there is a word
    tokens: Tensor  # [B, T] of the picture
    opaque: Tensor  # [B, T] bool: mostly covered by the object
    touched: Tensor  # [B, T] bool: covered by the object in part at least

    def top(self, rows: int) -> Self:
        """The same pictures without the rows below."""
        count = rows * (scenes.SIDE // scenes.GRID)
        own = {name: getattr(self, name)[:, :count] for name in ("tokens", "opaque", "touched")}
        return replace(self, **own)


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
    """Captions and tokens of scenes, on the device of the tokenizer."""
    rng = np.random.default_rng(seed)
    ids, mask = encode_captions(text, [scenes.caption(s, rng) for s in made])
    named = torch.isin(ids, torch.tensor(text.convert_tokens_to_ids(list(scenes.OBJECT_NAMES))))
    pixels = torch.from_numpy(np.stack([s.pixels for s in made])).permute(0, 3, 1, 2).float() / 127.5 - 1
    covered = torch.from_numpy(np.stack([s.opaque for s in made])).float()[:, None]
    share = F.avg_pool2d(covered, scenes.GRID).flatten(1)
    ids, named, mask, pixels, share = (x.to(vq.device) for x in (ids, named, mask, pixels, share))
    return Batch(ids, named, mask, vq.encode(pixels).flatten(1), share > 0.5, share > 0)


def token_losses(logits: Tensor, batch: Batch) -> Tensor:
    """Cross-entropy of every token in nats, [B, T]."""
    return F.cross_entropy(logits.flatten(0, 1), batch.tokens.flatten(), reduction="none").view(batch.tokens.shape)


def picture_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Weighted mean of the token losses."""
    since = batch.touched.cumsum(1).clamp(max=1).cumsum(1)  # 1 at the object's first token
    row = torch.arange(since.shape[1], device=since.device) // (scenes.SIDE // scenes.GRID)
    may_begin = (since <= 1) & (row >= BEGIN_ROWS.start) & (row < BEGIN_ROWS.stop)
    weight = 1 + (BEGIN_WEIGHT - 1) * may_begin + (TOP_WEIGHT - 1) * ((since > 1) & (since <= TOP_TOKENS))
    return (token_losses(logits, batch) * weight).sum() / weight.sum()


def hint_loss(logits: Tensor, batch: Batch, uncond: Tensor) -> Tensor:
    """How badly the row of the object's name foretells which tokens the object is made of.

    Its logits are read by nobody when a picture is drawn. Trained, they put the object's tokens where image rows look,
    which otherwise takes a small model very long to find: of a picture's 370 nats the name tells four.
    """
    share = logits.new_zeros(len(logits), logits.shape[-1]).scatter_add_(1, batch.tokens, batch.opaque.float())
    share = share / share.sum(1, keepdim=True).clamp(min=1)
    told = -(share[:, None] * logits.log_softmax(-1)).sum(-1)  # [B, P - 1]
    rows = batch.named[:, :-1] & ~uncond[:, None]
    return told[rows].sum() / rows.sum().clamp(min=1)


def grown(start: Path, layers: int | None) -> LlamaGenTransformer:
    """The saved transformer, with more layers where asked: new ones stand between old ones and first add nothing.

    Raises ValueError for fewer layers than the saved ones.
    """
    old = LlamaGenTransformer.from_pretrained(start).float()
    depth = old.config.num_layers
    if layers is None or depth == layers:
        return old
    if layers < depth:
        raise ValueError(f"`layers` must be at least {depth}, the depth of `{start}`, got {layers}.")
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
    transformer = LlamaGenTransformer(
        vocab_size=num_codes,
        dim=args.dim,
        num_layers=args.layers or LAYERS,
        num_heads=4,
        ffn_dim=704,
        cls_token_num=TEXT_LENGTH,
        caption_dim=encoder.config.d_model,
        grid_size=scenes.SIDE // scenes.GRID,
        text_rope=args.text_rope,
    )
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
        uncond = torch.zeros_like(batches[0].mask[:, 0])
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
        pictures.append(
            family.decode(torch.tensor(drawn).view(1, layout.rows, layout.cols).to(family.codebook().device))[0]
        )
    pixels = ((torch.cat(pictures, -1) + 1) * 127.5).round().byte().permute(1, 2, 0).cpu()
    return Image.fromarray(pixels.numpy())


def save(model: Captioned, text: PreTrainedTokenizerFast, vq: PatchTokenizer, folder: Path) -> None:
    """Weights, and beside them samples.png with one picture of each of SHEET."""
    model.transformer.save_pretrained(folder / "transformer")
    model.text_encoder.save_pretrained(folder / "text_encoder")
    text.save_pretrained(folder / "tokenizer")
    sheet(LlamaGen(model.transformer, vq, model.text_encoder, text), SHEET).save(folder / "samples.png")


def fixed_sets(vq: PatchTokenizer, text: PreTrainedTokenizerFast, size: int) -> dict[str, list[Batch]]:
    """Scenes to evaluate on, the same in every run: of training pairs, and of pairs held out."""
    sets = {}
    for name, held_out, count in (("seen", False, 96), ("held-out", True, 48)):
        rng = np.random.default_rng([1, held_out])
        groups = [[scenes.sample(rng, held_out) for _ in range(size)] for _ in range(max(1, count // size))]
        sets[name] = [make_batch(group, vq, text, index) for index, group in enumerate(groups)]
    return sets


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    folder = str(scenes.CACHE / "tokenizer")
    parser.add_argument("--minutes", type=positive_float, default=120.0)
    parser.add_argument("--tokenizer", type=saved_folder, default=folder, help="folder of the PatchTokenizer")
    parser.add_argument("--resume", type=saved_model, help="folder of a saved model to go on from")
    parser.add_argument("--out", type=new_folder, default=scenes.CACHE / "transformer")
    parser.add_argument("--layers", type=positive_int, help=f"default: as the saved model, {LAYERS} for a new one")
    parser.add_argument("--dim", type=positive_int, default=256)
    parser.add_argument("--batch", type=positive_int, default=8, help="pictures a step and process")
    parser.add_argument("--lr_scale", type=positive_float, default=1.0)
    parser.add_argument("--decay_from", type=fraction, default=0.5, help="share of the time before the rate falls")
    parser.add_argument("--text_rope", choices=("zero", "identity"), default="zero")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args, accelerator = options(), Accelerator()
    torch.manual_seed(args.seed)
    vq = PatchTokenizer.from_pretrained(args.tokenizer).float().to(accelerator.device)
    model, text = build(args, vq.config.num_codes)
    for layer in model.transformer.layers:
        layer.compile(dynamic=False)  # two lengths, two programs
    sets = fixed_sets(vq, text, args.batch)
    trained = accelerator.prepare(model)
    steppers = optimizers(model, args.lr_scale)
    rng = np.random.default_rng([args.seed, 3, accelerator.process_index])
    torch.manual_seed(args.seed + accelerator.process_index)
    with TimedLoop(accelerator, trained, steppers, args.minutes, args.decay_from) as loop:
        while loop.goes_on():
            drawn = [scenes.sample(rng) for _ in range(args.batch)]
            batch = make_batch(drawn, vq, text, int(rng.integers(2**31)))
            part = batch.top(SHORT_ROWS) if loop.count % FULL_EVERY else batch
            uncond = torch.rand(args.batch, device=accelerator.device) < DROPPED_CAPTIONS
            logits, told = trained(part.ids, part.mask, part.tokens, uncond)
            loss, hint = picture_loss(logits, part), hint_loss(told, batch, uncond)
            accelerator.backward(loss + HINT_WEIGHT * hint)
            loop.step()
            if loop.tells:
                pictures = loop.count * args.batch * accelerator.num_processes
                found = f"loss {loss.item():.3f}, hint {hint.item():.3f}"
                print(f"{loop.seconds:.0f} s, {pictures} pictures, {found}", flush=True)
            if loop.saves():
                print(json.dumps(evaluate(model, sets)), flush=True)
                save(model, text, vq, args.out)
    accelerator.end_training()


if __name__ == "__main__":
    command(main)
