"""The loop that every training on the clock shares: rate, steps, averaging of processes, and how much time is left."""

import time
from collections.abc import Sequence
from typing import Self

import torch
from accelerate import Accelerator
from accelerate.local_sgd import LocalSGD
from torch import nn
from torch.optim import Optimizer


AVERAGE_EVERY = 16  # steps between two averages of the processes' weights
WARM_UP = 60  # steps over which the rate rises; an eighth of all where they are few
SAVE_SECONDS = 300


class TimedLoop:
    """`while loop.goes_on():` backward, then `loop.step()`. Processes work alone and average their weights: local SGD.

    decay_from: share of the time before the rate falls, in a line to 0. steps: to make, however long they take.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        steppers: Sequence[Optimizer],
        minutes: float,
        decay_from: float,
        steps: int | None = None,
    ) -> None:
        self.accelerator, self.steppers, self.minutes, self.decay_from = accelerator, steppers, minutes, decay_from
        self.steps, self.warm_up = steps, max(1, min(WARM_UP, steps // 8)) if steps else WARM_UP
        self.rates = [[group["lr"] for group in stepper.param_groups] for stepper in steppers]
        self.local = LocalSGD(accelerator, model, local_sgd_steps=AVERAGE_EVERY, enabled=accelerator.num_processes > 1)
        self.start = self.saved = time.monotonic()
        self.count, self.done = 0, 0.0

    def __enter__(self) -> Self:
        self.local.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.local.__exit__(*error)

    @property
    def seconds(self) -> float:
        """Of training, when the processes last agreed."""
        return 60 * self.minutes * self.done

    def goes_on(self) -> bool:
        """Whether there is time for a step; sets its rate."""
        share = max(0.0, min(1.0, (self.count + 1) / self.warm_up, (1 - self.done) / (1 - self.decay_from)))
        for stepper, rates in zip(self.steppers, self.rates):
            for group, rate in zip(stepper.param_groups, rates):
                group["lr"] = rate * share
        return self.done < 1

    def step(self) -> None:
        """Change the weights by their gradients."""
        for stepper in self.steppers:
            stepper.step()
            stepper.zero_grad()
        self.local.step()
        self.count += 1
        if self.steps:
            self.done = self.count / self.steps
        elif self._is_averaged:
            # Where the weights are equal, all processes must agree on how much time is left.
            elapsed = (time.monotonic() - self.start) / (60 * self.minutes)
            elapsed = torch.tensor(elapsed, device=self.accelerator.device)
            self.done = self.accelerator.reduce(elapsed, "mean").item()

    @property
    def tells(self) -> bool:
        """Whether this process should say how far it is."""
        return self._is_averaged and self.accelerator.is_main_process

    def saves(self) -> bool:
        """Whether this process should save now: every few minutes, and at the end."""
        if not self.tells or (time.monotonic() - self.saved <= SAVE_SECONDS and self.done < 1):
            return False
        self.saved = time.monotonic()
        return True

    @property
    def _is_averaged(self) -> bool:
        return self.count % AVERAGE_EVERY == 0
