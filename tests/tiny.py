"""Real components at a size that draws a picture in milliseconds, untrained but of strong opinions; a small method."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast, T5Config, T5EncoderModel

from pipelines.base import ARImagePipeline
from pipelines.decoding.drafters import NoDraft
from pipelines.decoding.rules import ExactRule
from pipelines.models.eagle import EagleHead
from pipelines.models.llamagen import LlamaGenTransformer
from pipelines.models.patch_tokenizer import PatchTokenizer
from pipelines.settings import Settings, knob


WORDS = ("panda", "cat", "snow", "grass", "red", "blue")
VOCAB = 32
PATCH = 8


def components(grid_size: int = 4, seed: int = 0) -> dict[str, Any]:
    """What a pipeline is built from. Pictures are grid_size x grid_size tokens of 8 pixels."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        target = transformer(grid_size)
        return {
            "transformer": target,
            "vqvae": PatchTokenizer(PATCH, VOCAB, encoder_width=8, decoder_width=8, decoder_blocks=1, fine_width=8),
            "text_encoder": text_encoder(),
            "tokenizer": tokenizer(),
            "draft_model": draft_model(target),
        }


def transformer(grid_size: int) -> LlamaGenTransformer:
    model = LlamaGenTransformer(
        vocab_size=VOCAB,
        dim=32,
        num_layers=2,
        num_heads=2,
        ffn_dim=64,
        cls_token_num=4,
        caption_dim=16,
        grid_size=grid_size,
    )
    for weight in model.parameters():
        if weight.ndim == 2:
            # A fresh model starts silent; this one listens to the prompt and prefers some tokens to others.
            nn.init.normal_(weight, std=2 * weight.shape[1] ** -0.5)
    return model.eval()


def draft_model(target: LlamaGenTransformer) -> EagleHead:
    """Of random weights, for a fresh one only repeats what it reads."""
    head = EagleHead.over(target, ffn_dim=32)
    for weight in (head.attention_out.weight, head.down.weight):
        nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    return head.eval()


def text_encoder() -> T5EncoderModel:
    config = T5Config(vocab_size=len(WORDS) + 2, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    return T5EncoderModel(config).eval()


def tokenizer() -> PreTrainedTokenizerFast:
    """Knows `WORDS` and drops "a" and "on"."""
    words = {word: index for index, word in enumerate(("<pad>", "<unk>", *WORDS))}
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(Regex(r"\b(a|on)\b"), " ")],
    )
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", unk_token="<unk>", model_max_length=4)


@dataclass(frozen=True)
class WindowSettings(Settings):
    window: int = knob(16, low=2, high=64, step=1, label="Window", help="How many tokens one pass checks.")


class WindowPipeline(ARImagePipeline):
    """A method with a knob."""

    Settings = WindowSettings

    def method(self, settings, session):
        return NoDraft(), ExactRule()


def refusal(call: Callable, *arguments: Any, **named: Any) -> str:
    """The one sentence that the call is refused with."""
    with pytest.raises(ValueError) as caught:
        call(*arguments, **named)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400, message
    return message
