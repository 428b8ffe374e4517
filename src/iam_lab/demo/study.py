"""One run: a small network learns the digits in one of five ways, and is looked at on its way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import torch_iam as iam
from iam_lab.demo.data import Digits, Part, digits
from iam_lab.demo.methods import method
from iam_lab.models.mlp import MLP

SIZES = (64, 128, 128, 10)
UNLABELLED_BATCH = 100
RHO = 0.1
"""The radius at which every network is measured, whatever it was trained with."""


@dataclass(frozen=True)
class Schedule:
    """How all runs are optimised: SGD on all labelled images at once, cosine learning rate.

    Attributes:
        steps: of SGD.
        learning_rate: at the start.
        weight_decay: of all weights.
        momentum: of the gradients.
        looks: how often a run is measured, evenly spread, beside the untrained network.
    """

    steps: int = 400
    learning_rate: float = 0.1
    weight_decay: float = 5e-4
    momentum: float = 0.9
    looks: int = 20

    def rate(self, made: int) -> float:
        """The learning rate after so many steps.

        >>> Schedule(steps=100, learning_rate=0.2).rate(50)
        0.1
        """
        return self.learning_rate * (1 + math.cos(math.pi * min(made / self.steps, 1))) / 2


@dataclass(frozen=True)
class Job:
    """What a run is made from; its weights, its labels and its order of images follow from the seed."""

    key: str
    options: dict[str, float]
    seed: int
    schedule: Schedule
    part: Part = "test"
    restarts: int = 5
    """Starts of the last measurement of S; 0 measures only the error, at the end."""


@dataclass(frozen=True)
class Run:
    """What a run was seen to do.

    Attributes:
        key: of the method.
        seed: of the run.
        steps: when it was measured.
        errors: percent wrong on the held-out images, each time.
        inconsistencies: S_rho on the held-out images without their labels, at rho = 0.1, each time.
        skipped: steps left out because the objective was not finite.
    """

    key: str
    seed: int
    steps: list[int] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    inconsistencies: list[float] = field(default_factory=list)
    skipped: int = 0


class Training:
    """A network in training: iterating makes the steps."""

    def __init__(self, job: Job, data: Digits) -> None:
        self.job, self.data, self.skipped = job, data, 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.seed)
            self.model = MLP(SIZES)
        self.method = method(job.key)
        self.objective = self.method.objective(self.model, job.options, job.seed)
        self.draws = torch.Generator().manual_seed(job.seed)
        schedule = job.schedule
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            schedule.learning_rate,
            schedule.momentum,
            weight_decay=schedule.weight_decay,
        )
        self.made = 0

    def step(self) -> None:
        """One step of SGD."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.job.schedule.rate(self.made)
        self.optimizer.zero_grad()
        seen = self.objective.backward(
            self.data.x, self.data.y, nn.functional.cross_entropy, unlabeled=self._unlabelled()
        )
        if seen.finite:
            self.optimizer.step()
        else:
            self.skipped += 1
        self.made += 1

    def __iter__(self) -> Iterator[int]:
        """Train, and stop with the number of steps made wherever the run is to be looked at."""
        steps, looks = self.job.schedule.steps, max(self.job.schedule.looks, 1)
        due = {round(steps * k / looks) for k in range(looks + 1)}
        for made in range(steps + 1):
            if made in due:
                yield made
            if made < steps:
                self.step()

    def _unlabelled(self) -> Tensor | None:
        if not self.method.unlabelled:
            return None
        chosen = torch.randint(len(self.data.unlabelled), (UNLABELLED_BATCH,), generator=self.draws)
        return self.data.unlabelled[chosen]


def run(job: Job) -> Run:
    """Train and measure."""
    training = Training(job, digits(job.seed, job.part))
    steps: list[int] = []
    errors: list[float] = []
    found: list[float] = []
    for made in training:
        last = made == job.schedule.steps
        if job.restarts == 0 and not last:
            continue
        steps.append(made)
        errors.append(error(training.model, training.data))
        if job.restarts:
            found.append(inconsistency(training.model, training.data, job.restarts if last else 1))
    return Run(job.key, job.seed, steps, errors, found, training.skipped)


@torch.no_grad()
def error(model: nn.Module, data: Digits) -> float:
    """Percent of the held-out images that are classified wrongly."""
    wrong = model(data.held_x).argmax(1) != data.held_y
    return 100 * float(wrong.double().mean())


def inconsistency(model: nn.Module, data: Digits, restarts: int) -> float:
    """S_rho on the held-out images; their labels are not used."""
    return iam.local_inconsistency(model, data.held_x, rho=RHO, steps=3, restarts=restarts).value
