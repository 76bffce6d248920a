"""LlamaGen's text-to-image transformer. Knows nothing of tokenizers, sampling or pictures.

Sun et al. 2024, "Autoregressive Model Beats Diffusion", arXiv:2406.06525; the quirks follow the released weights.
"""

import torch
import torch.nn.functional as F
from diffusers import ConfigMixin, ModelMixin
from diffusers.configuration_utils import register_to_config
from torch import Tensor, nn


FFN_MULTIPLE = 256
TEXT_ROPES = ("zero", "identity")


def ffn_width(dim: int) -> int:
    """Width of LlamaGen's SwiGLU: two thirds of 4 D, rounded up to a multiple of 256."""
    return -(-(8 * dim // 3) // FFN_MULTIPLE) * FFN_MULTIPLE


def rope_table(head_dim: int, grid_size: int, base: float) -> Tensor:
    """Cosine and signed sine of every square of the grid: [2, grid_size ** 2, head_dim].

    Pairs of neighbouring channels turn together; the first half of the pairs by the row, the second by the column.
    The sine's sign is that of `x * cos + swapped(x) * sin`, where `swapped` exchanges the two channels of a pair.
    """
    pairs = head_dim // 4
    frequencies = base ** (-torch.arange(pairs, dtype=torch.float32) * 2 / (head_dim // 2))
    turns = torch.arange(grid_size, dtype=torch.float32)[:, None] * frequencies  # [side, pairs]
    rows = turns[:, None].expand(grid_size, grid_size, pairs)
    cols = turns[None, :].expand(grid_size, grid_size, pairs)
    angles = torch.cat([rows, cols], -1).reshape(grid_size**2, 2 * pairs)
    cos = angles.cos().repeat_interleave(2, -1)
    sin = torch.stack([-angles.sin(), angles.sin()], -1).flatten(-2)
    return torch.stack([cos, sin])


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of neighbouring channels. x: [..., n, heads, head_dim]; cos, sin: [n, 1, head_dim]."""
    swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return torch.addcmul(x * cos, swapped, sin)


class LlamaGenCondition(nn.Module):
    """Text features to transformer inputs; the unconditional row is a fixed table, not a learned one."""

    def __init__(self, caption_dim: int, dim: int, cls_token_num: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(caption_dim, dim, bias=False)
        self.fc2 = nn.Linear(dim, dim, bias=False)
        self.register_buffer("uncond_embedding", torch.randn(cls_token_num, caption_dim) / caption_dim**0.5)

    def forward(self, features: Tensor, uncond: Tensor | None = None) -> Tensor:
        """features: [B, P, C]; uncond: [B] bool, rows whose caption is dropped. Returns [B, P, D]."""
        if uncond is not None:
            features = torch.where(uncond[:, None, None], self.uncond_embedding, features)
        return self.fc2(F.gelu(self.fc1(features), approximate="tanh"))


class LlamaGenLayer(nn.Module):
    """One block: attention, then SwiGLU, each behind its RMSNorm and added to the stream."""

    def __init__(self, dim: int, num_heads: int, ffn_dim: int, norm_eps: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm = nn.RMSNorm(dim, eps=norm_eps)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.attention_out = nn.Linear(dim, dim, bias=False)
        self.ffn_norm = nn.RMSNorm(dim, eps=norm_eps)
        self.gate_up = nn.Linear(dim, 2 * ffn_dim, bias=False)
        self.down = nn.Linear(ffn_dim, dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor) -> Tensor:
        """x: [B, n, D]; cos, sin: [n, 1, head_dim]; bias: [B, 1, n, n] added to the scores. Returns [B, n, D]."""
        batch, length, dim = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.num_heads, -1)
        qk = rotate(qkv[:, :, :2].flatten(2, 3), cos, sin).transpose(1, 2)
        q, k = qk.split(self.num_heads, 1)
        mixed = F.scaled_dot_product_attention(q, k, qkv[:, :, 2].transpose(1, 2), attn_mask=bias)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, dim))
        gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class LlamaGenTransformer(ModelMixin, ConfigMixin):
    """Text features and image tokens to the next token's logits.

    `text_rope` is what the rotation does at text positions: LlamaGen multiplies queries and keys there by zero, so
    that image tokens attend to the whole text evenly; "identity" leaves them as they are.
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
        ffn_dim = ffn_dim or ffn_width(dim)
        self.condition = LlamaGenCondition(caption_dim, dim, cls_token_num)
        self.token_embedding = nn.Embedding(vocab_size, dim)
        self.layers = nn.ModuleList(LlamaGenLayer(dim, num_heads, ffn_dim, norm_eps) for _ in range(num_layers))
        self.norm = nn.RMSNorm(dim, eps=norm_eps)
        self.head = nn.Linear(dim, vocab_size, bias=False)
        text = torch.zeros(2, cls_token_num, dim // num_heads)
        text[0] = float(text_rope == "identity")
        image = rope_table(dim // num_heads, grid_size, rope_base)
        self.register_buffer("rope", torch.cat([text, image], 1)[:, :, None], persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start as a nearly silent residual stack: every block adds nothing, every token is about as likely."""
        for name, weight in self.named_parameters():
            if name.endswith(("attention_out.weight", "down.weight")):
                nn.init.zeros_(weight)
            elif name == "head.weight":
                nn.init.normal_(weight, std=0.002)
            elif weight.ndim == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, features: Tensor, mask: Tensor, tokens: Tensor, uncond: Tensor | None = None) -> Tensor:
        """Logits of every image token given those before it: [B, T, V].

        features: [B, P, C] text features, valid ones last; mask: [B, P] bool, True where valid; tokens: [B, T] the
        image, of which the last is not read; uncond: [B] bool, rows that see the unconditional features instead,
        under the same mask.
        """
        text = self.condition(features, uncond)
        x = torch.cat([text, self.token_embedding(tokens[:, :-1])], 1)
        cos, sin = self.rope[:, : x.shape[1]]
        bias = attention_bias(mask, x)
        for layer in self.layers:
            x = layer(x, cos, sin, bias)
        return self.head(self.norm(x[:, mask.shape[1] - 1 :]))


def attention_bias(mask: Tensor, x: Tensor) -> Tensor:
    """0 where a row may look, -inf elsewhere: [B, 1, n, n] in the type of x [B, n, D].

    mask: [B, P] bool, the valid text. Rows look at valid rows before them and always at themselves, padding included.
    """
    length = x.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
    valid = F.pad(mask, (0, length - mask.shape[1]), value=True)
    seen = (causal & valid[:, None]) | torch.eye(length, dtype=torch.bool, device=x.device)
    return torch.zeros_like(seen, dtype=x.dtype).masked_fill(~seen, -torch.inf)[:, None]
