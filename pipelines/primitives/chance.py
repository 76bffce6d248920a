"""All randomness of a run. Nothing else draws."""

import torch
from torch import Tensor


class Chance:
    """Every random choice of a run, one uniform each, drawn on the generator's own device.

    A CPU generator so gives the same dice to every accelerator, and a test can replace the dice by all their outcomes.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def bernoulli(self, prob: float) -> tuple[bool, float]:
        """True with probability `prob`, and the uniform in [0, 1) that decided: true where it is below `prob`."""
        assert 0.0 <= prob <= 1.0, f"{prob} is not a probability"
        dice = self._uniforms(1).item()
        return dice < prob, dice

    def categorical(self, probs: Tensor) -> Tensor:
        """Draw one token from each row: the first whose cumulative mass exceeds uniform x row sum.

        probs: [n, V], rows need not sum to 1. Returns [n] int64 on the device of `probs`. A token of probability 0 is
        never drawn: its cumulative mass is that of the token before it.
        """
        mass = probs.cumsum(-1, dtype=torch.float64)
        if not probs.is_cpu:
            # Accelerators add up in pieces: rounding may make the sums fall, or rise where the probability is 0.
            mass = mass.masked_fill_(probs <= 0, 0).cummax(-1).values
        total = mass[:, -1:]
        assert total.amin().item() > 0, "a law without mass cannot be drawn from"
        dice = self._uniforms(len(probs)).to(probs.device)[:, None]
        # Rounding may lift dice x total to the total itself, beyond which there is no token.
        bar = torch.minimum(dice * total, total.nextafter(torch.zeros_like(total)))
        return torch.searchsorted(mass, bar, right=True)[:, 0]

    def exponential(self, count: int, vocabulary: int) -> Tensor:
        """[count, vocabulary] float64 noise of the standard exponential law, above 0."""
        uniforms = self._uniforms(count * vocabulary).view(count, vocabulary)
        return (-torch.log1p(-uniforms)).clamp_(min=torch.finfo(torch.float64).tiny)

    def _uniforms(self, count: int) -> Tensor:
        return torch.rand(count, dtype=torch.float64, generator=self.generator, device=self.generator.device)
