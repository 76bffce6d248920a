"""What decoding may ask of a model family. Every family implements these roles; nothing here runs anything."""

from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from pipelines.primitives.distributions import Warp
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import Draft


@dataclass(frozen=True)
class Scores:
    """What one forward of the target says of a draft. Row 0 is the root, row i + 1 is node i.

    Row r is the state that consumed the row's token; its law is that of the next position, the children's.
    """

    probs: Tensor
    """[1 + N, V] float32 (float64 in tests): guided, forced, after temperature, top-k, top-p: the target's law p."""
    guided: Tensor
    """[1 + N, V] float32: the same before top-k and top-p."""
    hidden: Tensor
    """[R, 1 + N, D] features that the head reads (final-normed); R = 2 under guidance: conditional, unconditional."""
    taps: Tensor | None
    """[R, 1 + N, 3 D] inputs of three inner layers, early, middle, late; None unless `Session.keep_taps`."""


class Session(Protocol):
    """One run on one model: owns the key-value cache and the guidance pair. Weights are only read.

    The first score is the prefill. Its draft is empty, its root is the prompt: row 0 is the prompt's last row, the one
    that predicts position 0. From then on the root is the last committed token.
    """

    length: int
    """Cached positions, the prompt's included. The last committed token is never among them."""
    layout: Layout
    warp: Warp
    guidance_scale: float
    keep_taps: bool
    """False when opened. A drafter that reads inner layers sets it before the first score."""
    prefix_hidden: Tensor
    """[R, P, D] features of the prompt's rows, there after the first score; the last is that score's root row."""
    prefix_taps: Tensor | None
    """[R, P, 3 D] taps of the prompt's rows, there after the first score; None unless `keep_taps`."""

    def score(self, draft: Draft) -> Scores:
        """One forward of the target over root and draft: one NFE. Changes nothing that `commit` does not redo."""
        ...

    def commit(self, draft: Draft, path: list[int], token: int) -> None:
        """Keep root and `path` of the draft scored last, forget its other nodes; `token` is the next root."""
        ...


@dataclass(frozen=True)
class Condition:
    """A prompt as its model reads it.

    features: [R, P, D], R = 2 for families that can guide: row 0 conditional, row 1 unconditional. mask: [P] bool,
    true where there is text. unknown: words of the prompt that the model does not know -> the nearest known ones;
    empty for an open vocabulary.
    """

    features: Tensor
    mask: Tensor
    unknown: dict[str, list[str]] = field(default_factory=dict)


class ImageModel(Protocol):
    """What a pipeline must know of a model family."""

    def layout(self, height: int, width: int) -> Layout:
        """The layout of a picture of height x width pixels. Raises ValueError for a size the model cannot draw."""
        ...

    def condition(self, prompt: str, negative_prompt: str | None) -> Condition:
        """Encode a prompt. Raises ValueError where it is empty or nothing in it is known."""
        ...

    def open(self, condition: Condition, guidance_scale: float, warp: Warp, layout: Layout) -> Session:
        """A fresh session. Runs nothing; guidance_scale 1 means one row, anything above a pair."""
        ...

    def decode(self, tokens: Tensor) -> Tensor:
        """[B, h, w] codes -> pictures [B, 3, H, W] in [-1, 1]."""
        ...

    def codebook(self) -> Tensor:
        """[V, e] raw code vectors."""
        ...

    def token_embedding(self) -> Tensor:
        """[V, d] rows that the transformer reads for the codes."""
        ...
