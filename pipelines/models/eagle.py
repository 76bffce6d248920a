"""EAGLE-1's drafting head: one decoder layer that guesses the target's next features. Knows nothing of trees.

Li et al. 2024, "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", arXiv:2401.15077.
"""

from typing import Self

import torch
import torch.nn.functional as F
from diffusers import ConfigMixin, ModelMixin
from diffusers.configuration_utils import FrozenDict, register_to_config
from torch import Tensor, nn

from pipelines.models.kv_cache import KVCache
from pipelines.models.llamagen import (
    TEXT_ROPES,
    Attention,
    CachedAttention,
    FullAttention,
    LlamaGenTransformer,
    ffn_width,
    rms_norm,
    rope_angles,
    rope_turns,
)
from pipelines.models.products import add_product, product
from pipelines.models.protocol import Session
from pipelines.primitives.distributions import guide


SCRATCH_ROWS = 64  # rows of a draft that the cache has room for from the start


class EagleHead(ModelMixin, ConfigMixin):
    """Features of the target and the tokens that follow them to the features one position on, and from them logits.

    h_t = W [e(x_{t+1}); f_t] + b, then one decoder layer without a norm before its attention and none at its end. The
    result stands in for f_{t+1}: the target's own head reads it, and the next guess is drafted from it. Embedding and
    head are copies of the target's, which training leaves as they are. Text is known through the features only: there
    the token is 0. width: of the layer; another than the target's `dim` costs a projection more.
    """

    @register_to_config
    def __init__(
        self,
        vocab_size: int = 16384,
        dim: int = 1280,
        width: int | None = None,
        num_heads: int = 20,
        ffn_dim: int | None = None,
        cls_token_num: int = 120,
        grid_size: int = 16,
        norm_eps: float = 1e-5,
        rope_base: float = 10000.0,
        text_rope: str = "zero",
    ) -> None:
        super().__init__()
        width = width or dim
        if width % (4 * num_heads):
            raise ValueError(f"`width` must be a multiple of 4 x `num_heads`, got {width} and {num_heads}.")
        ffn_dim = ffn_dim or ffn_width(width)
        self.token_embedding = nn.Embedding(vocab_size, dim)
        self.head = nn.Linear(dim, vocab_size, bias=False)
        self.fc = nn.Linear(2 * dim, width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.ffn_norm = nn.RMSNorm(width, eps=norm_eps)
        self.gate_up = nn.Linear(width, 2 * ffn_dim, bias=False)
        self.down = nn.Linear(ffn_dim, width, bias=False)
        self.out = nn.Identity() if width == dim else nn.Linear(width, dim, bias=False)
        for frozen in (self.token_embedding, self.head):
            frozen.requires_grad_(False)
        for silent in (self.attention_out, self.down):
            nn.init.zeros_(silent.weight)

    @classmethod
    def over(cls, target: LlamaGenTransformer, width: int | None = None, ffn_dim: int | None = None) -> Self:
        """An untrained head for a target, with the target's embedding and head.

        ffn_dim: None is the target's for a layer as wide as the target's, else by `ffn_width`.
        """
        config, width = target.config, width or target.config.dim
        ffn_dim = ffn_dim or (config.ffn_dim if width == config.dim else None)
        model = cls(
            vocab_size=config.vocab_size,
            dim=config.dim,
            width=width,
            num_heads=width * config.num_heads // config.dim,
            ffn_dim=ffn_dim,
            cls_token_num=config.cls_token_num,
            grid_size=config.grid_size,
            norm_eps=config.norm_eps,
            rope_base=config.rope_base,
            text_rope=config.text_rope,
        )
        model.token_embedding.load_state_dict(target.token_embedding.state_dict())
        model.head.load_state_dict(target.head.state_dict())
        return model

    def forward(self, tokens: Tensor, features: Tensor) -> Tensor:
        """Guess of the features one position on, at every row of whole pictures, for training: [B, rows, D].

        features: [B, rows, D] of the target, its text rows first, the last of them the one that foretells the first
        token; tokens: [B, rows], at each row the token that follows it, 0 where that is text.
        """
        batch, rows, _ = features.shape
        x = self.fc(torch.cat([self.token_embedding(tokens), features], -1))
        return self.block(x.flatten(0, 1), self._full_attention(batch, rows, x)).view(batch, rows, -1)

    def block(self, x: Tensor, attention: Attention) -> Tensor:
        """The decoder layer: [B n, width] to [B n, D]."""
        x = add_product(x, attention(0, product(x, self.qkv.weight)), self.attention_out.weight)
        normed = rms_norm(x, self.ffn_norm.weight, self.config.norm_eps)
        gate, up = product(normed, self.gate_up.weight).chunk(2, -1)
        return self.out(add_product(x, F.silu(gate) * up, self.down.weight))

    @property
    def text_rows(self) -> int:
        """Rows whose following token is text."""
        return self.config.cls_token_num - 1

    @property
    def head_dim(self) -> int:
        return self.fc.out_features // self.config.num_heads

    def _full_attention(self, batch: int, rows: int, x: Tensor) -> FullAttention:
        config, text = self.config, self.text_rows
        angles = rope_angles(self.head_dim, config.grid_size, config.rope_base, x.device)
        seen = torch.ones(batch, text, dtype=torch.bool, device=x.device)
        return FullAttention(angles[: rows - text], TEXT_ROPES[config.text_rope], seen, x.dtype)


class EagleRun:
    """One run of a head beside one session of its target: owns the head's cache, for both rows of the guidance pair.

    `extend` takes in what the target has said; `step` then goes on from the head's own guesses, which the next
    `extend` forgets. Laws are guided and warped as the target's are.
    """

    @torch.inference_mode()
    def __init__(self, head: EagleHead, session: Session) -> None:
        config, self.head, self.session = head.config, head, session
        self.rows = 2 if session.guidance_scale > 1 else 1
        embedded, self._of_features = (half.contiguous() for half in head.fc.weight.split(config.dim, -1))
        # The first layer by token, worked out once; and what reads a guess, head and first layer, as one product.
        self._of_token = F.linear(head.token_embedding.weight, embedded, head.fc.bias)  # [V, width]
        self._reads = torch.cat([head.head.weight, self._of_features])  # [V + width, D]
        self._turns = rope_turns(FrozenDict({**config, "dim": head.fc.out_features}), self._reads.device)[1:]
        capacity = head.text_rows + session.layout.length + SCRATCH_ROWS
        shape = (1, 2, self.rows, config.num_heads, capacity, head.head_dim)
        self._cache = KVCache(self._reads.new_empty(shape))
        self._known = 0  # rows of the cache that stand on the target's features

    @torch.inference_mode()
    def extend(self, tokens: list[int], features: Tensor) -> Tensor:
        """[1, V] law of the token after the last of `tokens`.

        features: [R, n, D] of the target's next n rows; tokens: [n] what follows each of them, 0 for text.
        """
        self._cache.length = self._known
        count = len(tokens)
        bias = None
        if count > 1:
            bias = F.pad(self._reads.new_full((count, count), -torch.inf).triu_(1), (self._known, 0))
        hidden = self._run(self._heard(tokens, features), self._turns[self._known : self._known + count], bias)
        self._known += count
        self._seen: Tensor | None = None
        return self._laws(hidden.view(self.rows, count, -1)[:, -1:], 0)

    @torch.inference_mode()
    def step(self, tokens: list[int], parents: list[int], depth: int) -> Tensor:
        """[m, V] laws of what follows m nodes of depth `depth`; parents: their rows in the call before."""
        count, held = len(tokens), self._cache.length
        turns = self._turns[self._known + depth - 1].expand(count, -1, -1, -1)
        hidden = self._run(self._guessed(tokens, parents), turns, self._bias(parents, held - self._known))
        return self._laws(hidden.view(self.rows, count, -1), depth)

    def _heard(self, tokens: list[int], features: Tensor) -> Tensor:
        """[R, n, width] first layer of what the target has said."""
        rows = product(features.to(self._of_token.dtype).flatten(0, 1), self._of_features)
        return self._of_token[tokens] + rows.view(self.rows, len(tokens), -1)

    def _guessed(self, tokens: list[int], parents: list[int]) -> Tensor:
        """[R, m, width] first layer of guesses, after rows `parents` of the call before."""
        return self._of_token[tokens] + self._guesses[:, parents]

    def _run(self, x: Tensor, turns: Tensor, bias: Tensor | None) -> Tensor:
        hidden = self.head.block(x.flatten(0, 1), CachedAttention(self._cache, turns, bias))
        self._cache.length += len(turns)
        return hidden

    def _bias(self, parents: list[int], drafted: int) -> Tensor | None:
        """What hides the drafted rows off each node's path; None while every level is one node."""
        count = len(parents)
        if count == 1 and self._seen is None:
            return None
        own = self._reads.new_full((count, count), -torch.inf).fill_diagonal_(0)
        above = own.new_zeros(count, drafted) if self._seen is None else self._seen[parents]
        self._seen = torch.cat([above, own], -1)
        return F.pad(self._seen, (self._known, 0))

    def _laws(self, hidden: Tensor, depth: int) -> Tensor:
        """[m, V] laws that guesses of features [R, m, D] at `depth` stand for."""
        logits = self._read(hidden).float()
        logits = logits[0] if self.rows == 1 else guide(logits[0], logits[1], self.session.guidance_scale)
        warp, layout = self.session.warp, self.session.layout
        position = self._known - self.head.text_rows + depth
        return layout.force(warp.filter(warp.soften(logits)), position)

    def _read(self, hidden: Tensor) -> Tensor:
        """[R, m, V] logits of features [R, m, D]; keeps what the next step reads of them."""
        logits, self._guesses = F.linear(hidden, self._reads).split(
            [len(self._of_token), self.head.fc.out_features], -1
        )
        return logits


def check_fit(head: nn.Module | None, kind: type[nn.Module], target: LlamaGenTransformer) -> None:
    """Raise ValueError unless `head` is a drafting head of this kind for `target`."""
    if not isinstance(head, kind):
        found = "none" if head is None else f"a {type(head).__name__}"
        raise ValueError(f"`draft_model` must be an {kind.__name__}, which this method guesses with, got {found}.")
    for name in ("vocab_size", "dim", "cls_token_num", "grid_size"):
        wanted, found = target.config[name], head.config[name]
        if found != wanted:
            raise ValueError(f"`draft_model` must have the `{name}` of `transformer`, {wanted}, got {found}.")
