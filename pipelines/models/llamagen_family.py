"""LlamaGen as an image model: T5 text in, codes of a VQ tokenizer out. Knows nothing of methods."""

from dataclasses import dataclass
from difflib import get_close_matches
from reprlib import repr as shown

import torch
import torch.nn.functional as F
from diffusers.configuration_utils import FrozenDict
from diffusers.utils import logging
from diffusers.utils.accelerate_utils import apply_forward_hook
from torch import Tensor
from transformers import JanusVQVAE, PreTrainedTokenizerBase, T5EncoderModel

from pipelines.models.kv_cache import KVCache
from pipelines.models.llamagen import (
    CachedAttention,
    LlamaGenOutput,
    LlamaGenTransformer,
    attention_bias,
    rope_turns,
)
from pipelines.models.patch_tokenizer import PatchTokenizer
from pipelines.models.protocol import Condition, Scores
from pipelines.primitives.distributions import Warp, guide
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import Draft


logger = logging.get_logger(__name__)

VQ_PATCH = 16  # pixels a side, of LlamaGen's VQ-16: the size of a code where no tokenizer is loaded
DRAFT_ROWS = 65  # root and nodes of the largest draft that the cache has room for from the start
SUGGESTIONS = 3  # nearest known words


@dataclass(frozen=True)
class LlamaGenCondition(Condition):
    """negative_mask: [P] bool of the unconditional row where a negative prompt fills it; None where it has `mask`."""

    negative_mask: Tensor | None = None


class JanusCodes:
    """LlamaGen's VQ tokenizer under the words of `PatchTokenizer`: transformers' `JanusVQVAE` is the same network."""

    def __init__(self, vqvae: JanusVQVAE) -> None:
        self.vqvae = vqvae
        self.config = FrozenDict(patch_size=2 ** (len(vqvae.config.channel_multiplier) - 1))

    def decode(self, tokens: Tensor) -> Tensor:
        return _decode_janus(self.vqvae, tokens).clamp(-1, 1)

    def codebook(self) -> Tensor:
        return self.vqvae.quantize.embedding.weight.detach()


@apply_forward_hook
def _decode_janus(vqvae: JanusVQVAE, tokens: Tensor) -> Tensor:
    # `forward`, which the hooks of offloading wrap, encodes; `decode` takes one size of picture only.
    codes = F.normalize(vqvae.quantize.embedding(tokens), dim=-1)  # [B, h, w, e]
    return vqvae.decoder(vqvae.post_quant_conv(codes.movedim(-1, 1)))


def _check_fit(
    transformer: LlamaGenTransformer,
    codes: JanusCodes | PatchTokenizer | None,
    text_encoder: T5EncoderModel | None,
    tokenizer: PreTrainedTokenizerBase | None,
) -> None:
    if not isinstance(codes, JanusCodes | PatchTokenizer | None):
        raise ValueError(f"`vqvae` must be a PatchTokenizer or a JanusVQVAE, got a {type(codes).__name__}.")
    if not isinstance(text_encoder, T5EncoderModel | None):
        raise ValueError(f"`text_encoder` must be a T5EncoderModel, got a {type(text_encoder).__name__}.")
    if not isinstance(tokenizer, PreTrainedTokenizerBase | None):
        raise ValueError(f"`tokenizer` must be a tokenizer of transformers, got a {type(tokenizer).__name__}.")
    config = transformer.config
    if codes is not None and len(codes.codebook()) < config.vocab_size:
        raise ValueError(
            f"`vqvae` must have the {config.vocab_size} codes that `transformer` draws, got {len(codes.codebook())}."
        )
    if text_encoder is not None and text_encoder.config.d_model != config.caption_dim:
        raise ValueError(
            f"`text_encoder` must be {config.caption_dim} wide, as `transformer` reads it, "
            f"got {text_encoder.config.d_model}."
        )
    if text_encoder is not None and tokenizer is not None and len(tokenizer) > text_encoder.config.vocab_size:
        raise ValueError(
            f"`tokenizer` must have at most the {text_encoder.config.vocab_size} words that `text_encoder` knows, "
            f"got {len(tokenizer)}."
        )


class LlamaGen:
    """`ImageModel` over a `LlamaGenTransformer`, a T5 encoder with its tokenizer, and a VQ tokenizer."""

    def __init__(
        self,
        transformer: LlamaGenTransformer,
        vqvae: JanusVQVAE | PatchTokenizer | None,
        text_encoder: T5EncoderModel | None,
        tokenizer: PreTrainedTokenizerBase | None,
    ) -> None:
        """Raises ValueError, naming the component, where one does not fit the transformer."""
        self.transformer, self.text_encoder, self.tokenizer = transformer, text_encoder, tokenizer
        self.codes = JanusCodes(vqvae) if isinstance(vqvae, JanusVQVAE) else vqvae
        _check_fit(transformer, self.codes, text_encoder, tokenizer)

    @property
    def patch_size(self) -> int:
        """Pixels a side that one token paints."""
        return VQ_PATCH if self.codes is None else self.codes.config.patch_size

    def layout(self, height: int, width: int) -> Layout:
        side = self.transformer.config.grid_size
        pixels = side * self.patch_size
        for name, value in {"height": height, "width": width}.items():
            if value != pixels:
                raise ValueError(
                    f"`{name}` must be {pixels} pixels, the one size this model draws, got {shown(value)}."
                )
        return Layout(side, side)

    def condition(self, prompt: str, negative_prompt: str | None) -> LlamaGenCondition:
        if self.text_encoder is None or self.tokenizer is None:
            raise ValueError("`text_encoder` and `tokenizer` must be loaded to read a prompt, got none.")
        features, mask = self._encode(self._token_ids(prompt, "prompt"))
        uncond, negative_mask = self.transformer.condition.uncond_embedding, None
        if negative_prompt is not None:
            uncond, negative_mask = self._encode(self._token_ids(negative_prompt, "negative_prompt"))
        pair = torch.stack([features, uncond.to(features)])
        unknown = self._unknown(prompt) | self._unknown(negative_prompt or "")
        return LlamaGenCondition(pair, mask, unknown, negative_mask)

    def open(
        self, condition: LlamaGenCondition, guidance_scale: float, warp: Warp, layout: Layout
    ) -> "LlamaGenSession":
        return LlamaGenSession(self.transformer, condition, guidance_scale, warp, layout)

    @torch.inference_mode()
    def decode(self, tokens: Tensor) -> Tensor:
        if self.codes is None:
            raise ValueError("`vqvae` must be loaded to decode tokens, got none.")
        return self.codes.decode(tokens)

    def codebook(self) -> Tensor:
        if self.codes is None:
            raise ValueError("`vqvae` must be loaded to read its codebook, got none.")
        return self.codes.codebook()

    def token_embedding(self) -> Tensor:
        return self.transformer.token_embedding.weight.detach()

    @property
    def _is_closed(self) -> bool:
        """Whether the tokenizer knows whole words only, so that a prompt may hold unknown ones."""
        return type(self.tokenizer.backend_tokenizer.model).__name__ == "WordLevel"

    def _token_ids(self, prompt: str, name: str) -> list[int]:
        """Token ids of a prompt, at most P; unknown words are left out. LlamaGen lower-cases captions."""
        if not prompt.strip():
            raise ValueError(f"`{name}` must say what to draw, got an empty text.")
        room = self.transformer.config.cls_token_num
        text = prompt.strip().lower()
        ids = [token for token in self.tokenizer(text).input_ids if token != self.tokenizer.unk_token_id]
        if not ids:
            near = dict.fromkeys(word for words in self._unknown(prompt).values() for word in words)
            hint = f"; near to that it knows {', '.join(list(near)[:SUGGESTIONS])}" if near else ""
            raise ValueError(f"`{name}` must name something this model knows, got {shown(prompt)}{hint}.")
        if len(ids) <= room:
            return ids
        if self._is_closed:
            raise ValueError(f"`{name}` must have at most {room} words that this model knows, got {len(ids)}.")
        logger.warning("`%s` has %d tokens; this model reads the first %d.", name, len(ids), room)
        return self.tokenizer(text, truncation=True, max_length=room).input_ids

    def _unknown(self, prompt: str) -> dict[str, list[str]]:
        """Words of the prompt that a closed vocabulary lacks -> the nearest ones it has."""
        if not self._is_closed:
            return {}
        text = prompt.strip().lower()
        coded = self.tokenizer(text, return_offsets_mapping=True)
        words = self.tokenizer.get_vocab().keys() - set(self.tokenizer.all_special_tokens)
        spans = [
            span for token, span in zip(coded.input_ids, coded.offset_mapping) if token == self.tokenizer.unk_token_id
        ]
        return {text[start:end]: get_close_matches(text[start:end], words, SUGGESTIONS) for start, end in spans}

    @torch.inference_mode()
    def _encode(self, ids: list[int]) -> tuple[Tensor, Tensor]:
        """Features [P, C] and mask [P] of at most P token ids: padding comes first and is 0, as LlamaGen turns it."""
        padding = self.transformer.config.cls_token_num - len(ids)
        tokens = torch.tensor([ids], device=self.text_encoder.device)
        features = F.pad(self.text_encoder(input_ids=tokens).last_hidden_state[0], (0, 0, padding, 0))
        return features, torch.arange(len(features), device=features.device) >= padding


def tap_layers(count: int) -> tuple[int, ...]:
    """EAGLE-3's early, middle and late layer (Li et al. 2025, released code); of fewer than 7 the last three."""
    return (2, count // 2, count - 3) if count > 6 else tuple(range(max(0, count - 3), count))


def native_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the device multiplies it faster than float32, else float32.

    Of CPUs, only those with AMX tiles do: with AVX512-BF16 alone, its products take twice the time of float32's.
    """
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != device.type:
        is_native = torch.cpu._is_amx_tile_supported()
    else:
        # Metal has no such question to ask; it multiplies bfloat16 in hardware.
        ask = getattr(torch.get_device_module(device), "is_bf16_supported", None)
        is_native = ask is None or ask(including_emulation=False)
    return torch.bfloat16 if is_native else torch.float32


class LlamaGenSession:
    """One run: a guidance pair as one batch of two over one cache. Without guidance, one row."""

    def __init__(
        self,
        transformer: LlamaGenTransformer,
        condition: LlamaGenCondition,
        guidance_scale: float,
        warp: Warp,
        layout: Layout,
    ) -> None:
        self.layout, self.warp, self.guidance_scale = layout, warp, guidance_scale
        self.keep_taps = False
        self.length = 0
        rows = 2 if guidance_scale > 1 else 1
        negative_mask = condition.mask if condition.negative_mask is None else condition.negative_mask
        self._transformer = transformer
        self._features = condition.features[:rows].to(transformer.dtype)
        self._mask = torch.stack([condition.mask, negative_mask])[:rows]
        # Text that a row of the batch sees. The rest leaves the cache after the prefill, for image rows never look at
        # it: so later forwards need no mask for the text, unless a negative prompt has another length.
        seen = self._mask.any(0)
        self._text = seen.nonzero()[:, 0].tolist()
        self._text_bias = None
        if not self._mask[:, seen].all():
            hidden = ~self._mask[:, None, None, seen]
            self._text_bias = self._features.new_zeros(hidden.shape).masked_fill(hidden, -torch.inf)
        self._turns = rope_turns(transformer.config, self._features.device)
        self._root: int | None = None
        config = transformer.config
        capacity = len(condition.mask) + layout.length + DRAFT_ROWS
        shape = (config.num_layers, 2, rows, config.num_heads, capacity, config.dim // config.num_heads)
        self._cache = KVCache(self._features.new_empty(shape))

    @torch.inference_mode()
    def score(self, draft: Draft) -> Scores:
        output = self._prefill() if self._root is None else self._step(draft)
        rows = slice(-1 - len(draft), None)
        logits = output.logits.float()
        logits = logits[0] if len(logits) == 1 else guide(logits[0], logits[1], self.guidance_scale)
        guided = self._force(self.warp.soften(logits), draft)
        taps = None if output.taps is None else output.taps[:, rows]
        return Scores(self.warp.filter(guided), guided, output.hidden[:, rows], taps)

    @torch.inference_mode()
    def commit(self, draft: Draft, path: list[int], token: int) -> None:
        if self._root is None:
            self._cache.keep(self._text)
            self.length = self._mask.shape[1]
        else:
            self._cache.keep([0, *(node + 1 for node in path)])
            self.length += 1 + len(path)
        self._root = token

    def _prefill(self) -> LlamaGenOutput:
        attention = CachedAttention(
            self._cache,
            self._turns[: self._mask.shape[1]],
            attention_bias(self._mask, self._mask.shape[1], self._features.dtype),
        )
        output = self._transformer(features=self._features, tap_layers=self._tap_layers, attention=attention)
        self.prefix_hidden, self.prefix_taps = output.hidden, output.taps
        return output

    def _step(self, draft: Draft) -> LlamaGenOutput:
        tokens = torch.tensor([[self._root, *draft.tokens]], device=self._turns.device)
        if draft.is_chain:
            turns = self._turns[self.length : self.length + 1 + len(draft)]
        else:
            turns = self._turns[[self.length, *(self.length + depth for depth in draft.depth)]]
        attention = CachedAttention(self._cache, turns, self._bias(draft))
        tokens = tokens.expand(len(self._features), -1)
        return self._transformer(tokens=tokens, tap_layers=self._tap_layers, attention=attention)

    def _bias(self, draft: Draft) -> Tensor | None:
        """What hides the nodes off each row's path, and text of the other prompt; None where nothing is hidden.

        SDPA's own causal mask starts at the upper left, which is wrong behind a cache, so chains have one here too.
        """
        size = 1 + len(draft)
        if size == 1 and self._text_bias is None:
            return None
        nodes = self._features.new_full((size, size), -torch.inf)
        nodes = nodes.triu_(1) if draft.is_chain else nodes.masked_fill_(draft.tree_mask.to(nodes.device), 0)
        bias = F.pad(nodes, (self._cache.length, 0))
        if self._text_bias is None:
            return bias
        image = bias[:, len(self._text) :].expand(len(self._features), 1, -1, -1)
        return torch.cat([self._text_bias.expand(-1, -1, size, -1), image], -1)

    def _force(self, probs: Tensor, draft: Draft) -> Tensor:
        if not self.layout.forced:
            return probs
        first = 0 if self._root is None else self.length - self._mask.shape[1] + 1
        return torch.stack([self.layout.force(row, first + depth) for row, depth in zip(probs, [0, *draft.depth])])

    @property
    def _tap_layers(self) -> tuple[int, ...]:
        return tap_layers(self._transformer.config.num_layers) if self.keep_taps else ()
