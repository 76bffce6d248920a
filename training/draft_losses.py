"""What drafting heads are trained for: EAGLE-1's features and logits, EAGLE-3's unrolled guesses."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipelines.models.eagle3 import Eagle3Head
from training.draft_heads import Head
from training.draft_reader import Read


REDUNDANT_ABOVE = 0.625  # cosine, of states less their mean
REDUNDANT_WEIGHT = 2.0
DECAY = 0.8  # of the loss from one unrolled step to the next
UNROLLED = 5  # steps
LOGIT_WEIGHT = 0.1  # of EAGLE-1's loss of logits beside that of features
NOISE = 0.2 * 512  # width of the uniform noise on EAGLE-1's input features, times the rows of a sequence
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
    """Mean of losses [B, n] in which redundant rows count twice."""
    weights = redundancy_weights(is_redundant)
    return (losses * weights).mean()


def redundancy_weights(is_redundant: Tensor) -> Tensor:
    """[B, n] of mean 1: redundant rows count twice as much as others."""
    weights = 1 + (REDUNDANT_WEIGHT - 1) * is_redundant
    return weights / weights.mean()


def unrolled_loss(logits: list[Tensor], laws: list[Tensor], weights: list[Tensor]) -> Tensor:
    """EAGLE-3's: cross-entropy of every unrolled step, each counting 0.8 of the one before it.

    logits, laws: [B, rows, V] a step; weights: [B, rows] a step, 0 where there is nothing to foretell. Means are over
    all rows. Li et al. 2025, arXiv:2503.01840.
    """
    steps = [(cross_entropy(law, guess) * weight).mean() for guess, law, weight in zip(logits, laws, weights)]
    return sum(DECAY**step * loss for step, loss in enumerate(steps))


def losses(head: nn.Module, frozen: nn.Linear, read: Read, flagged: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """EAGLE-1's, of features (smooth L1) and of logits (cross-entropy of the target's law): means over image rows.

    Of the logits, redundant rows count twice. frozen: the target's head; flagged: [B, T - 1] bool, redundant image
    rows; noise: width of the uniform noise on the features read. Li et al. 2024, arXiv:2401.15077.
    """
    hidden, text = read.hidden.float(), text_rows(read)
    seen = hidden[:, :-1] + noise * (torch.rand_like(hidden[:, :-1]) - 0.5)
    guessed, true = head(following(read), seen)[:, text:], hidden[:, text + 1 :]
    of_logits = cross_entropy(frozen(true).softmax(-1), frozen(guessed))
    return F.smooth_l1_loss(guessed, true), weighted_mean(of_logits, flagged)


def unrolled_losses(head: nn.Module, frozen: nn.Linear, read: Read, flagged: Tensor, steps: int) -> Tensor:
    """EAGLE-3's, over `steps` guesses in a row from every image row; redundant states count twice at every step.

    frozen: the target's head; flagged: [B, T - 1] bool, image rows whose state is redundant.
    """
    text = text_rows(read)
    guesses = head(following(read), read.taps[:, :-1].float(), steps)
    laws, weights = frozen(read.hidden[:, text + 1 :].float()).softmax(-1), redundancy_weights(flagged)
    return unrolled_loss(
        [guess[:, text:] for guess in guesses],
        [F.pad(laws[:, step:], (0, 0, 0, step)) for step in range(steps)],
        [F.pad(weights[:, step:], (0, step)) for step in range(steps)],
    )


def text_rows(read: Read) -> int:
    """Rows whose following token is text."""
    return read.hidden.shape[1] - read.tokens.shape[1]


def following(read: Read) -> Tensor:
    """[B, P + T - 2] the token after each row but the last, 0 for text."""
    return F.pad(read.tokens[:, :-1], (text_rows(read), 0))


def lesson(trained: nn.Module, head: Head, frozen: nn.Linear, read: Read, reach: int | None) -> tuple[Tensor, dict]:
    """Loss of a head over pictures, and what to tell of it by name.

    trained: `head`, as an accelerator has prepared it; frozen: the target's head; reach: rows ahead in which a
    redundant state comes again.
    """
    flagged = redundant(read.hidden[:, text_rows(read) + 1 :].float(), reach)
    told = {"flagged": flagged.float().mean().item()}
    if isinstance(head, Eagle3Head):
        loss = unrolled_losses(trained, frozen, read, flagged, UNROLLED)
        return loss, {"loss": loss.item()} | told
    of_features, of_logits = losses(trained, frozen, read, flagged, NOISE / (read.hidden.shape[1] + 1))
    loss = of_features + LOGIT_WEIGHT * of_logits
    return loss, {"features": of_features.item(), "logits": of_logits.item()} | told
