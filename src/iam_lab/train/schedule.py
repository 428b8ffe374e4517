"""The learning rate of every step."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from iam_lab.errors import RecipeError
from iam_lab.recipes.schema import Schedule
from iam_lab.train.numerics import field

Factor = Callable[[int], float]


class Rates(Protocol):
    """Sets the learning rates."""

    def set(self, step: int) -> None:
        """For the step of this number, from 0; called once before each."""

    def state_dict(self) -> dict[str, Any]:
        """What the next rate depends on beside the step."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""


def build_rates(schedule: Schedule, optimizer: Optimizer, steps: int, steps_per_epoch: int) -> Rates:
    """The schedule over ``steps`` steps in all."""
    if schedule.name in SHAPES:
        return ClosedForm(optimizer, factor(schedule, steps))
    with field("schedule", schedule.options):
        rates = TorchRates(optimizer, schedule, steps_per_epoch)
    enough, due = getattr(rates.scheduler, "total_steps", None), (steps - 1) // rates.interval
    if enough is not None and enough < due:
        raise RecipeError(
            f"schedule.options: {schedule.name} ends after {enough} steps, and is to make {due}, one "
            f"{'a step' if rates.interval == 1 else 'an epoch'}: write total_steps={due + 1}."
        )
    return rates


def factor(schedule: Schedule, steps: int) -> Factor:
    """What the learning rate is multiplied with at each step.

    >>> multistep = factor(Schedule(milestones=(0.3, 0.6), gamma=0.2), steps=10)
    >>> [round(multistep(step), 2) for step in range(10)]
    [1.0, 1.0, 1.0, 0.2, 0.2, 0.2, 0.04, 0.04, 0.04, 0.04]
    >>> linear = factor(Schedule("linear", warmup_steps=2), steps=6)
    >>> [linear(step) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    shape = SHAPES[schedule.name](schedule)
    warmup = schedule.warmup_steps

    def at(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return shape((step - warmup) / max(steps - warmup, 1))

    return at


SHAPES: Mapping[str, Callable[[Schedule], Callable[[float], float]]] = {
    "constant": lambda schedule: lambda share: 1.0,
    "multistep": lambda schedule: lambda share: schedule.gamma ** bisect_right(schedule.milestones, share),
    "cosine": lambda schedule: (
        lambda share: schedule.final + (1 - schedule.final) * (1 + math.cos(math.pi * share)) / 2
    ),
    "cosine-7-16": lambda schedule: lambda share: math.cos(7 * math.pi * share / 16),
    "linear": lambda schedule: lambda share: 1 + (schedule.final - 1) * share,
}
"""Name to the rate over the share of the training that is done, after the warm-up."""


class ClosedForm:
    """Rates that are a function of the step alone."""

    def __init__(self, optimizer: Optimizer, factor: Factor) -> None:
        self.optimizer, self.factor = optimizer, factor
        self.first = [float(group["lr"]) for group in optimizer.param_groups]

    def set(self, step: int) -> None:
        """Write the rates, in place where they are tensors, as a CUDA graph reads them."""
        factor = self.factor(step)
        for group, first in zip(self.optimizer.param_groups, self.first, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(first * factor)
            else:
                group["lr"] = first * factor

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to do."""


class TorchRates:
    """Any scheduler of ``torch.optim.lr_scheduler`` that needs no metric."""

    def __init__(self, optimizer: Optimizer, schedule: Schedule, steps_per_epoch: int) -> None:
        found: Any = getattr(torch.optim.lr_scheduler, schedule.name, None)
        base = torch.optim.lr_scheduler.LRScheduler
        if not (isinstance(found, type) and issubclass(found, base)) or found is base:
            known = ", ".join(SHAPES)
            raise RecipeError(
                f"schedule.name must be one of {known} or a class of torch.optim.lr_scheduler, "
                f"found {schedule.name!r}."
            )
        if found is torch.optim.lr_scheduler.ReduceLROnPlateau:
            raise RecipeError(
                "schedule.name: ReduceLROnPlateau follows a metric, which no schedule here sees."
            )
        make: Any = found
        self.scheduler: torch.optim.lr_scheduler.LRScheduler = make(optimizer, **schedule.options)
        self.interval = steps_per_epoch if schedule.every == "epoch" else 1

    def set(self, step: int) -> None:
        """Step the scheduler, where a step is due."""
        if step > 0 and step % self.interval == 0:
            with field("schedule"):
                self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """The scheduler's."""
        return self.scheduler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.scheduler.load_state_dict(dict(state))
