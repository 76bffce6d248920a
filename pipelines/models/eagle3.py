"""EAGLE-3's drafting head: reads three inner layers of the target and is trained on its own guesses.

Li et al. 2025, "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test",
arXiv:2503.01840. Its reduced draft vocabulary is left out: images use the whole codebook.
"""

from typing import Self

import torch
import torch.nn.functional as F
from diffusers import ConfigMixin, ModelMixin
from diffusers.configuration_utils import register_to_config
from torch import Tensor, nn

from pipelines.models.eagle import SCRATCH_ROWS, EagleRun
from pipelines.models.kv_cache import KVCache
from pipelines.models.llamagen import (
    TEXT_ROPES,
    Attention,
    CachedAttention,
    FullAttention,
    LlamaGenTransformer,
    ffn_width,
    rope_angles,
    rope_turns,
)
from pipelines.models.protocol import Session


TAPS = 3


class Eagle3Head(ModelMixin, ConfigMixin):
    """Inner layers of the target and the tokens that follow them to logits of the next token.

    g = W taps; queries, keys and values of one decoder layer read [norm e(x_{t+1}); norm g_t], g_t is what the layer
    adds to, and its own head reads its normed result. For the next guess the result itself stands in for g. The
    embedding is a copy of the target's, which training leaves as it is; the head starts as a copy.
    """

    @register_to_config
    def __init__(
        self,
        vocab_size: int = 16384,
        dim: int = 1280,
        num_heads: int = 20,
        ffn_dim: int | None = None,
        cls_token_num: int = 120,
        grid_size: int = 16,
        norm_eps: float = 1e-5,
        rope_base: float = 10000.0,
        text_rope: str = "zero",
    ) -> None:
        super().__init__()
        ffn_dim = ffn_dim or ffn_width(dim)
        self.token_embedding = nn.Embedding(vocab_size, dim).requires_grad_(False)
        self.fc = nn.Linear(TAPS * dim, dim, bias=False)
        self.token_norm, self.state_norm, self.ffn_norm, self.norm = (nn.RMSNorm(dim, eps=norm_eps) for _ in range(4))
        self.qkv = nn.Linear(2 * dim, 3 * dim, bias=False)
        self.attention_out = nn.Linear(dim, dim, bias=False)
        self.gate_up = nn.Linear(dim, 2 * ffn_dim, bias=False)
        self.down = nn.Linear(ffn_dim, dim, bias=False)
        self.head = nn.Linear(dim, vocab_size, bias=False)
        for silent in (self.attention_out, self.down):
            nn.init.zeros_(silent.weight)

    @classmethod
    def over(cls, target: LlamaGenTransformer, ffn_dim: int | None = None) -> Self:
        """An untrained head for a target, with the target's embedding and head."""
        names = ("vocab_size", "dim", "num_heads", "cls_token_num", "grid_size", "norm_eps", "rope_base", "text_rope")
        model = cls(ffn_dim=ffn_dim, **{name: target.config[name] for name in names})
        model.token_embedding.load_state_dict(target.token_embedding.state_dict())
        model.head.load_state_dict(target.head.state_dict())
        return model

    def forward(self, tokens: Tensor, taps: Tensor, steps: int) -> list[Tensor]:
        """Guesses over whole pictures, for training, each step from those of the step before: [B, rows, V] a step.

        taps: [B, rows, 3 D] of the target, its text rows first, the last of them the one that foretells the first
        token; tokens: [B, rows], at each row the token that follows it, 0 where that is text. Row t of step s is the
        guess of the token s + 2 places after row t's own; the last s rows of step s guess beyond the picture.
        """
        batch, rows, _ = taps.shape
        attention, state, logits = self._unrolled_attention(batch, rows, taps), self.fc(taps), []
        for _ in range(steps):
            state = self.block(tokens.flatten(), state.flatten(0, 1), attention).view(batch, rows, -1)
            logits.append(self.logits(state))
            tokens = F.pad(tokens[:, 1:], (0, 1))
        return logits

    def block(self, tokens: Tensor, state: Tensor, attention: Attention) -> Tensor:
        """The decoder layer: tokens [n], states before them [n, D], to the states that follow [n, D]."""
        seen = torch.cat([self.token_norm(self.token_embedding(tokens)), self.state_norm(state)], -1)
        state = state + self.attention_out(attention(0, self.qkv(seen)))
        gate, up = self.gate_up(self.ffn_norm(state)).chunk(2, -1)
        return state + self.down(F.silu(gate) * up)

    def logits(self, state: Tensor) -> Tensor:
        """[.., V] of the token after states [.., D]."""
        return self.head(self.norm(state))

    @property
    def text_rows(self) -> int:
        """Rows whose following token is text."""
        return self.config.cls_token_num - 1

    def _unrolled_attention(self, batch: int, rows: int, like: Tensor) -> "UnrolledAttention":
        config, text = self.config, self.text_rows
        angles = rope_angles(config.dim // config.num_heads, config.grid_size, config.rope_base, like.device)
        seen = torch.ones(batch, text, dtype=torch.bool, device=like.device)
        return UnrolledAttention(angles[: rows - text], TEXT_ROPES[config.text_rope], seen, like.dtype)


class UnrolledAttention(FullAttention):
    """Whole pictures step after step: a row sees what the target said up to it, then its own row of later steps.

    Row t of step s stands s places further, and is turned so.
    """

    def __init__(self, angles: Tensor, text_turn: float, mask: Tensor, dtype: torch.dtype) -> None:
        super().__init__(angles, text_turn, mask, dtype)
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        rows, head_dim = self.cos.shape[0], self.cos.shape[2]
        q, k, v = qkv.view(-1, rows, 3, qkv.shape[-1] // (3 * head_dim), head_dim).unbind(2)
        query = self._turn(q) * head_dim**-0.5
        self.keys.append(self._turn(k))
        self.values.append(v.transpose(1, 2))
        self.cos, self.sin = (F.pad(turn[1:], (0, 0, 0, 0, 0, 1)) for turn in (self.cos, self.sin))
        scores = [query @ self.keys[0].mT + self.bias, *((query * own).sum(-1, True) for own in self.keys[1:])]
        shares = torch.cat(scores, -1).softmax(-1)
        mixed = shares[..., :rows] @ self.values[0]
        for share, own in zip(shares[..., rows:].split(1, -1), self.values[1:]):
            mixed = mixed + share * own
        return mixed.transpose(1, 2).flatten(2).flatten(0, 1)


class Eagle3Run(EagleRun):
    """One run of an EAGLE-3 head beside one session of its target, which it asks to keep its inner layers."""

    @torch.inference_mode()
    def __init__(self, head: Eagle3Head, session: Session) -> None:
        config, self.head, self.session = head.config, head, session
        session.keep_taps = True
        self.rows = 2 if session.guidance_scale > 1 else 1
        self._reads = head.head.weight
        self._turns = rope_turns(config, self._reads.device)[1:]
        capacity = head.text_rows + session.layout.length + SCRATCH_ROWS
        shape = (1, 2, self.rows, config.num_heads, capacity, config.dim // config.num_heads)
        self._cache = KVCache(self._reads.new_empty(shape))
        self._known = 0

    def _heard(self, tokens: list[int], features: Tensor) -> tuple[list[int], Tensor]:
        """features: [R, n, 3 D] inner layers."""
        return tokens, F.linear(features.to(self._reads.dtype), self.head.fc.weight)

    def _guessed(self, tokens: list[int], parents: list[int]) -> tuple[list[int], Tensor]:
        return tokens, self._guesses[:, parents]

    def _run(self, x: tuple[list[int], Tensor], turns: Tensor, bias: Tensor | None) -> Tensor:
        tokens, state = torch.tensor(x[0] * self.rows, device=self._reads.device), x[1].flatten(0, 1)
        state = self.head.block(tokens, state, CachedAttention(self._cache, turns, bias))
        self._cache.length += len(turns)
        return state

    def _read(self, hidden: Tensor) -> Tensor:
        self._guesses = hidden
        return self.head.logits(hidden)
