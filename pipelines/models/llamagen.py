"""LlamaGen's text-to-image transformer. Knows nothing of tokenizers, sampling or pictures.

Sun et al. 2024, "Autoregressive Model Beats Diffusion", arXiv:2406.06525; the quirks follow the released weights.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from diffusers import ConfigMixin, ModelMixin
from diffusers.configuration_utils import FrozenDict, register_to_config
from torch import Tensor, nn

from pipelines.models.kv_cache import KVCache
from pipelines.models.products import add_product, product


FFN_MULTIPLE = 256
TEXT_ROPES = {"zero": 0.0, "identity": 1.0}
# The sizes that LlamaGen names (gpt.py); what they share is the default of `LlamaGenTransformer`.
SIZES = {
    "B": {"num_layers": 12, "num_heads": 12, "dim": 768},
    "L": {"num_layers": 24, "num_heads": 16, "dim": 1024},
    "XL": {"num_layers": 36, "num_heads": 20, "dim": 1280},
    "XXL": {"num_layers": 48, "num_heads": 24, "dim": 1536},
    "XXXL": {"num_layers": 48, "num_heads": 40, "dim": 2560},
    "1B": {"num_layers": 22, "num_heads": 32, "dim": 2048},
    "3B": {"num_layers": 24, "num_heads": 32, "dim": 3200},
    "7B": {"num_layers": 32, "num_heads": 32, "dim": 4096},
}

Attention = Callable[[int, Tensor], Tensor]
"""(layer, [B n, 3 D] queries, keys and values) -> [B n, D] what each row gathers from the rows it sees."""


def ffn_width(dim: int) -> int:
    """Width of LlamaGen's SwiGLU: two thirds of 4 D, rounded up to a multiple of 256."""
    return -(-(8 * dim // 3) // FFN_MULTIPLE) * FFN_MULTIPLE


def rope_angles(head_dim: int, grid_size: int, base: float, device: torch.device) -> Tensor:
    """Angle by which each pair of channels turns at each square of the grid: [grid_size ** 2, head_dim / 2] float32.

    The first half of the pairs turns with the row, the second with the column.
    """
    steps = torch.arange(0, head_dim // 2, 2, dtype=torch.float32, device=device)
    turns = torch.arange(grid_size, device=device)[:, None] * base ** (-steps / (head_dim // 2))
    rows = turns[:, None].expand(-1, grid_size, -1)
    cols = turns[None, :].expand(grid_size, -1, -1)
    return torch.cat([rows, cols], -1).flatten(0, 1)


def rope_turns(config: FrozenDict, device: torch.device) -> Tensor:
    """Complex factors of queries, keys and values at every row: [text + image rows, 3, 1, head_dim / 2] complex64.

    Values do not turn: their factor is 1.
    """
    angles = rope_angles(config.dim // config.num_heads, config.grid_size, config.rope_base, device)
    turns = F.pad(
        torch.polar(torch.ones_like(angles), angles),
        (0, 0, config.cls_token_num, 0),
        value=TEXT_ROPES[config.text_rope],
    )
    return torch.stack([turns, turns, torch.ones_like(turns)], 1)[:, :, None]


def attention_bias(mask: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """0 where a row may look, -inf elsewhere: [B, 1, length, length].

    mask: [B, P] bool, true where there is text. A row sees text and image rows before it and always itself, also where
    it is padding.
    """
    causal = torch.ones(length, length, dtype=torch.bool, device=mask.device).tril()
    there = F.pad(mask, (0, length - mask.shape[1]), value=True)
    seen = (causal & there[:, None]) | torch.eye(length, dtype=torch.bool, device=mask.device)
    return torch.zeros(seen.shape, dtype=dtype, device=mask.device).masked_fill(~seen, -torch.inf)[:, None]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """F.rms_norm of rows [R, D]. Of float32 without gradients it takes fewer calls, of which a small step is made."""
    if torch.is_grad_enabled() or x.dtype != torch.float32:
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scale = torch.addcmul(norm.new_tensor(eps), norm, norm, value=1 / x.shape[-1]).rsqrt_()
    return (x * scale).mul_(weight)


class FullAttention:
    """Every row of a sequence at once, for training: differentiable, real arithmetic, fixed shapes."""

    def __init__(self, angles: Tensor, text_turn: float, mask: Tensor, dtype: torch.dtype) -> None:
        """angles: [image rows, head_dim / 2]; text_turn: cosine at text rows, whose sine is 0; mask: [B, P] bool."""
        text = mask.shape[1]
        cos = F.pad(angles.cos(), (0, 0, text, 0), value=text_turn)
        sin = F.pad(angles.sin(), (0, 0, text, 0))
        # The sine of a pair carries the sign it has in x * cos + swapped(x) * sin.
        self.cos = cos.repeat_interleave(2, -1)[:, None].to(dtype)
        self.sin = torch.stack([-sin, sin], -1).flatten(-2)[:, None].to(dtype)
        self.bias = attention_bias(mask, len(cos), dtype)

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        rows, head_dim = self.cos.shape[0], self.cos.shape[2]
        qkv = qkv.view(-1, rows, 3, qkv.shape[-1] // (3 * head_dim), head_dim)
        q, k = self._turn(qkv[:, :, 0]), self._turn(qkv[:, :, 1])
        mixed = F.scaled_dot_product_attention(q, k, qkv[:, :, 2].transpose(1, 2), attn_mask=self.bias)
        return mixed.transpose(1, 2).flatten(2).flatten(0, 1)

    def _turn(self, x: Tensor) -> Tensor:
        swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        return torch.addcmul(x * self.cos, swapped, self.sin).transpose(1, 2)


class CachedAttention:
    """New rows of a run over all its rows: turns in place, writes keys and values to the cache. Inference only."""

    def __init__(self, cache: KVCache, turns: Tensor, bias: Tensor | None) -> None:
        """turns: [n, 3, 1, head_dim / 2] complex64 factors of queries, keys and values (1) of the n new rows.

        bias: added to the scores, broadcast to [B, heads, n, length + n]; None where every row may see everything.
        """
        self.turns = turns
        self.bias = bias
        self.new, self.keys, self.values = cache.extend(len(turns))

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        new = self.new[layer]
        _, batch, heads, rows, head_dim = new.shape
        turned = qkv.view(batch, rows, 3, heads, head_dim).float()
        torch.view_as_complex(turned.view(batch, rows, 3, heads, -1, 2)).mul_(self.turns)
        turned = turned.permute(2, 0, 3, 1, 4)  # [3, B, heads, n, head_dim]
        new.copy_(turned[1:])
        query, keys, values = turned[0].to(new.dtype), self.keys[layer], self.values[layer]
        mixed = F.scaled_dot_product_attention(query, keys, values, attn_mask=self.bias)
        return mixed.transpose(1, 2).reshape(batch * rows, -1)


class LlamaGenCondition(nn.Module):
    """Text features to transformer inputs; the unconditional row is a fixed table, not a learned one."""

    def __init__(self, caption_dim: int, dim: int, cls_token_num: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(caption_dim, dim, bias=False)
        self.fc2 = nn.Linear(dim, dim, bias=False)
        self.register_buffer("uncond_embedding", torch.randn(cls_token_num, caption_dim) / caption_dim**0.5)

    def forward(self, features: Tensor, uncond: Tensor | None) -> Tensor:
        """features: [B, P, C]; uncond: [B] bool, rows whose caption is dropped. Returns [B, P, D]."""
        if uncond is not None:
            features = torch.where(uncond[:, None, None], self.uncond_embedding, features)
        return self.fc2(F.gelu(self.fc1(features), approximate="tanh"))


class LlamaGenHead(nn.Linear):
    """Features [.., D] to logits [.., V]."""

    def forward(self, x: Tensor) -> Tensor:
        return product(x.flatten(0, -2), self.weight).view(*x.shape[:-1], -1)


class LlamaGenLayer(nn.Module):
    """One block: attention, then SwiGLU, each behind its RMSNorm and added to the stream.

    The matrices are the block's own parameters, for speed: a step of a small model is mostly calls.
    """

    def __init__(self, dim: int, ffn_dim: int, norm_eps: float) -> None:
        super().__init__()
        self.norm_eps = norm_eps
        self.attention_norm = nn.Parameter(torch.ones(dim))
        self.qkv = nn.Parameter(torch.empty(3 * dim, dim))
        self.attention_out = nn.Parameter(torch.empty(dim, dim))
        self.ffn_norm = nn.Parameter(torch.ones(dim))
        self.gate_up = nn.Parameter(torch.empty(2 * ffn_dim, dim))
        self.down = nn.Parameter(torch.empty(dim, ffn_dim))

    def forward(self, x: Tensor, layer: int, attention: Attention) -> Tensor:
        """x: [B n, D]. Returns the same shape."""
        qkv = product(rms_norm(x, self.attention_norm, self.norm_eps), self.qkv)
        x = add_product(x, attention(layer, qkv), self.attention_out)
        gate, up = product(rms_norm(x, self.ffn_norm, self.norm_eps), self.gate_up).chunk(2, -1)
        return add_product(x, F.silu(gate) * up, self.down)


@dataclass(frozen=True)
class LlamaGenOutput:
    """What one forward leaves: all of it for every row of the sequence, but logits from the last text row on."""

    logits: Tensor
    """[B, n, V] of the token after each row."""
    hidden: Tensor
    """[B, rows, D] what the head reads, after the last norm."""
    taps: Tensor | None
    """[B, rows, D x layers] inputs of the layers asked for, side by side."""


class LlamaGenTransformer(ModelMixin, ConfigMixin):
    """Text features and image tokens to the next token's logits.

    `text_rope` is what the rotation does at text rows: LlamaGen multiplies queries and keys there by zero ("zero"), so
    that image rows attend to the whole text evenly; "identity" leaves them as they are.
    """

    _no_split_modules = ["LlamaGenLayer"]

    @register_to_config
    def __init__(
        self,
        vocab_size: int = 16384,
        dim: int = 1280,
        num_layers: int = 36,
        num_heads: int = 20,
        ffn_dim: int | None = None,
        cls_token_num: int = 120,
        caption_dim: int = 2048,
        grid_size: int = 16,
        norm_eps: float = 1e-5,
        rope_base: float = 10000.0,
        text_rope: str = "zero",
    ) -> None:
        super().__init__()
        if dim % (4 * num_heads):
            raise ValueError(f"`dim` must be a multiple of 4 x `num_heads`, got {dim} and {num_heads}.")
        if text_rope not in TEXT_ROPES:
            raise ValueError(f"`text_rope` must be one of {', '.join(TEXT_ROPES)}, got {text_rope!r}.")
        self.condition = LlamaGenCondition(caption_dim, dim, cls_token_num)
        self.token_embedding = nn.Embedding(vocab_size, dim)
        self.layers = nn.ModuleList(LlamaGenLayer(dim, ffn_dim or ffn_width(dim), norm_eps) for _ in range(num_layers))
        self.norm = nn.RMSNorm(dim, eps=norm_eps)
        self.head = LlamaGenHead(dim, vocab_size, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start as a nearly silent residual stack: every block adds nothing, every token is about as likely."""
        for name, weight in self.named_parameters():
            if name.endswith(("attention_out", "down")):
                nn.init.zeros_(weight)
            elif name == "head.weight":
                nn.init.normal_(weight, std=0.002)
            elif weight.ndim == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(
        self,
        features: Tensor | None = None,
        mask: Tensor | None = None,
        tokens: Tensor | None = None,
        uncond: Tensor | None = None,
        tap_layers: tuple[int, ...] = (),
        attention: CachedAttention | None = None,
    ) -> LlamaGenOutput:
        """One pass over text, image, or both. All passes are this one call, for offload hooks wrap no other.

        features: [B, P, C] of the text, its valid rows last; mask: [B, P] bool, true where valid; tokens: [B, n];
        uncond: [B] bool, rows that see the unconditional features instead, under the same mask; tap_layers: whose
        inputs to return.

        Without `attention`, the whole picture: features, mask and all T tokens, of which the last is not read; logits
        are [B, T, V], of each token given those before it. With it, the next rows of a run: the features alone (the
        prefill), then tokens alone.
        """
        if attention is None:
            tokens = tokens[:, :-1]
        text = [] if features is None else [self.condition(features, uncond)]
        image = [] if tokens is None else [self.token_embedding(tokens)]
        x = torch.cat(text + image, 1)
        batch, rows, dim = x.shape
        x, taps = self._run(x.flatten(0, 1), tap_layers, attention or self._full_attention(mask, rows, x))
        hidden = self.norm(x).view(batch, rows, dim)
        first = features.shape[1] - 1 if text else 0
        taps = torch.cat(taps, -1).view(batch, rows, -1) if taps else None
        return LlamaGenOutput(self.head(hidden[:, first:]), hidden, taps)

    def _run(self, x: Tensor, tap_layers: tuple[int, ...], attention: Attention) -> tuple[Tensor, list[Tensor]]:
        taps = []
        for index, layer in enumerate(self.layers):
            if index in tap_layers:
                taps.append(x)
            x = layer(x, index, attention)
        return x, taps

    def _full_attention(self, mask: Tensor, rows: int, x: Tensor) -> FullAttention:
        config = self.config
        angles = rope_angles(config.dim // config.num_heads, config.grid_size, config.rope_base, x.device)
        return FullAttention(angles[: rows - mask.shape[1]], TEXT_ROPES[config.text_rope], mask, x.dtype)
