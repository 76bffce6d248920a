"""What a drafting head is trained for beside EAGLE-1's loss: redundant states count more; EAGLE-3 guesses on."""

import torch
import torch.nn.functional as F
from torch import Tensor


REDUNDANT_ABOVE = 0.625  # cosine, of states less their mean
REDUNDANT_WEIGHT = 2.0
DECAY = 0.8  # of the loss from one unrolled step to the next
REACHES = {"none": 0, "window": 5, "later": None}  # rows ahead that are looked at; None: to the picture's end


def redundant(states: Tensor, reach: int | None) -> Tensor:
    """[B, n] bool: whether one of the next `reach` states, or any later one, is like this one.

    states: [B, n, D] of the target, image rows only. CASCADE, arXiv:2605.07230, weighs such rows more; that states are
    compared less their mean is ours, for raw ones are nearly all alike.
    """
    states = F.normalize(states - states.mean((0, 1)), dim=-1)
    later = torch.ones(states.shape[1], states.shape[1], dtype=torch.bool, device=states.device).triu(1)
    if reach is not None:
        later = later.tril(reach)
    return ((states @ states.mT > REDUNDANT_ABOVE) & later).any(-1)


def cross_entropy(laws: Tensor, logits: Tensor) -> Tensor:
    """[..] of laws [.., V] and the logits [.., V] that foretell them, in nats."""
    return -(laws * logits.log_softmax(-1)).sum(-1)


def weighted_mean(losses: Tensor, is_redundant: Tensor) -> Tensor:
    """Mean of losses [B, n] in which redundant rows count twice; the weights sum to what they divide by."""
    weights = 1 + (REDUNDANT_WEIGHT - 1) * is_redundant
    return (losses * weights).sum() / weights.sum()


def unrolled_loss(logits: list[Tensor], laws: list[Tensor], weights: list[Tensor]) -> Tensor:
    """EAGLE-3's: cross-entropy of every unrolled step, each counting 0.8 of the one before it.

    logits, laws: [B, rows, V] a step; weights: [B, rows] a step, 0 where there is nothing to foretell. Means are over
    all rows. Li et al. 2025, arXiv:2503.01840.
    """
    steps = [(cross_entropy(law, guess) * weight).mean() for guess, law, weight in zip(logits, laws, weights)]
    return sum(DECAY**step * loss for step, loss in enumerate(steps))
