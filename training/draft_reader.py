"""What a drafting head learns from: pictures as its target has read them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast, T5EncoderModel

from pipelines.models.llamagen import LlamaGenTransformer
from pipelines.models.llamagen_family import tap_layers
from pipelines.models.patch_tokenizer import PatchTokenizer
from training import scenes
from training.train_transformer import DROPPED_CAPTIONS, Batch, make_batch


REUSE = 4  # times a picture is trained on
KEPT = 2048  # pictures whose features are kept, 0.13 MB each at a width of 256, four times that with inner layers


@dataclass(frozen=True)
class Read:
    """Pictures as the target has read them, in half precision."""

    tokens: Tensor  # [B, T]
    hidden: Tensor  # [B, P + T - 1, D]: what the target's head reads
    taps: Tensor | None = None  # [B, P + T - 1, 3 D] inner layers


class Target(nn.Module):
    """Text encoder and transformer, frozen."""

    def __init__(self, folder: Path, with_taps: bool) -> None:
        super().__init__()
        self.transformer = LlamaGenTransformer.from_pretrained(folder / "transformer").float().eval()
        self.text_encoder = T5EncoderModel.from_pretrained(folder / "text_encoder").float().eval()
        self.tap_layers = tap_layers(self.transformer.config.num_layers) if with_taps else ()
        self.requires_grad_(False)

    @torch.no_grad()
    def forward(self, batch: Batch, uncond: Tensor) -> Read:
        features = self.text_encoder(input_ids=batch.ids, attention_mask=batch.mask.long()).last_hidden_state
        features = features * batch.mask[..., None]
        found = self.transformer(features, batch.mask, batch.tokens, uncond, self.tap_layers)
        return Read(batch.tokens, found.hidden.half(), None if found.taps is None else found.taps.half())


class Reader:
    """Batches for training: fresh ones, and in between ones read before."""

    def __init__(self, target: Target, vq: PatchTokenizer, text: PreTrainedTokenizerFast, size: int, seed: list[int]):
        self.target, self.vq, self.text, self.size = target, vq, text, size
        self.rng, self.kept, self.drawn = np.random.default_rng(seed), [], 0

    def next(self) -> Read:
        self.drawn += 1
        if self.drawn % REUSE and self.kept:
            return self.kept[self.rng.integers(len(self.kept))]
        read = self.fresh()
        self.kept = [*self.kept[-(KEPT // self.size) + 1 :], read]
        return read

    def fresh(self) -> Read:
        """Pictures never read before; one caption in ten is dropped."""
        made = [scenes.sample(self.rng) for _ in range(self.size)]
        batch = make_batch(made, self.vq, self.text, int(self.rng.integers(2**31)))
        uncond = torch.from_numpy(self.rng.random(self.size) < DROPPED_CAPTIONS).to(batch.tokens.device)
        return self.target(batch, uncond)
