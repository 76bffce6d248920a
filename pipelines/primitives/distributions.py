"""Laws over a vocabulary: from logits to the law that is sampled, and the arithmetic between laws. Draws nothing."""

from dataclasses import dataclass

import torch
from torch import Tensor


def guide(cond: Tensor, uncond: Tensor, scale: float) -> Tensor:
    """Classifier-free guidance on logits of one shape: uncond + scale (cond - uncond). Ho & Salimans 2022."""
    return torch.add(uncond, cond - uncond, alpha=scale)


def one_hot(tokens: list[int], like: Tensor) -> Tensor:
    """Laws of certainty, [n, V] with the dtype, device and V of `like` [.., V]."""
    laws = like.new_zeros(len(tokens), like.shape[-1])
    laws[range(len(tokens)), tokens] = 1
    return laws


def residual(p: Tensor, q: Tensor) -> Tensor:
    """Law of the token that replaces a refused one: norm(max(p - q, 0)).

    p, q: [V], each summing to 1. Leviathan et al. 2023, Alg. 1. Where p <= q everywhere, up to rounding nothing can
    have been refused; p is returned.
    """
    excess = (p - q).clamp(min=0)
    mass = excess.sum()
    return excess / mass if mass > 0 else p


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """Half the summed absolute difference, [...] for laws [..., V]: 0 for equal laws, 1 for disjoint ones."""
    return (p - q).abs().sum(-1) / 2


NUCLEUS = 128  # likeliest tokens among which top-p is looked for first: to rank them all takes eight times as long
COLDEST = 1e-4  # temperatures below are greedy: the law is certainty, and logits over them overflow


@dataclass(frozen=True)
class Warp:
    """How logits become the law that is sampled. One object serves target and drafter.

    Order: temperature, top-k, top-p, as LlamaGen samples. temperature 0 is greedy: certainty of the first largest
    logit. top_k 0 and top_p 1 switch their filter off. Laws are float32, or float64 where the logits are.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"`temperature` must be a finite number of at least 0, got {self.temperature}.")
        if self.top_k < 0:
            raise ValueError(f"`top_k` must be at least 0 (0 switches it off), got {self.top_k}.")
        if not 0 <= self.top_p <= 1:
            raise ValueError(f"`top_p` must lie between 0 and 1 (1 switches it off), got {self.top_p}.")

    def soften(self, logits: Tensor) -> Tensor:
        """Probabilities [..., V] of guided logits [..., V] after temperature, before any filter."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.temperature < COLDEST:
            best = logits.argmax(-1, keepdim=True)
            return torch.zeros_like(logits).scatter(-1, best, 1)
        return (logits if self.temperature == 1 else logits / self.temperature).softmax(-1)

    def filter(self, probs: Tensor) -> Tensor:
        """Probabilities [..., V] after top-k (ties with the k-th stay), then top-p (the crossing token stays)."""
        if 0 < self.top_k < probs.shape[-1]:
            least = probs.topk(self.top_k, dim=-1).values[..., -1:]
            probs = _normalised(probs.masked_fill(probs < least, 0))
        if self.top_p < 1:
            probs = _normalised(probs.masked_fill(self._beyond(probs), 0))
        return probs

    def _beyond(self, probs: Tensor) -> Tensor:
        """[..., V] bool: what top-p refuses. Of equal tokens the first ones stay."""
        best = probs.topk(min(NUCLEUS, probs.shape[-1]), dim=-1).values
        beyond = best.cumsum(-1) - best > self.top_p
        least = best.masked_fill(beyond, torch.inf).amin(-1, keepdim=True)
        refused = probs < least
        unsettled = ~beyond[..., -1] | ((best == least) & beyond).any(-1)  # more tokens stay, or an equal one does not
        if unsettled.any():
            ranked, tokens = probs[unsettled].sort(dim=-1, descending=True, stable=True)
            last = ranked.cumsum(-1) - ranked > self.top_p
            refused[unsettled] = torch.zeros_like(last).scatter(-1, tokens, last)
        return refused


def _normalised(masses: Tensor) -> Tensor:
    return masses / masses.sum(-1, keepdim=True)
