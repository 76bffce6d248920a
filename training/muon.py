"""Muon (Jordan et al. 2024): momentum whose matrices are made orthogonal before the step.

torch.optim.Muon iterates in bfloat16, which costs three times as much on processors without native bfloat16, and it
is absent from torch 2.8; this one stays in the weights' own type.
"""

import torch
from torch import Tensor


NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


def orthogonal(matrix: Tensor) -> Tensor:
    """The matrix [m, n] with its singular values moved near 1."""
    a, b, c = NEWTON_SCHULZ
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(ITERATIONS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


class Muon(torch.optim.Optimizer):
    """For matrices inside the network; embeddings, heads and norms belong to AdamW."""

    def __init__(self, params: list[Tensor], lr: float = 0.02, momentum: float = 0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                state["momentum"].lerp_(weight.grad, 1 - group["momentum"])
                update = orthogonal(weight.grad.lerp(state["momentum"], group["momentum"]))
                weight.add_(update, alpha=-group["lr"] * max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5)
