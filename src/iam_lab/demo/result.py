"""What the demo found, as the file beside the page holds it: the page says nothing that is not in here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torch import Tensor, nn

from iam_lab.demo.data import digits
from iam_lab.demo.methods import METHODS
from iam_lab.demo.study import RHO, Job, Run, run
from iam_lab.demo.timing import Cost, time_steps
from iam_lab.demo.tuning import Tuned
from iam_lab.machine import machine
from iam_lab.report.statistics import Mean, mean
from iam_lab.toy.boundary import Delta, changed, noise, one_step
from iam_lab.toy.mixture import Mixture
from iam_lab.toy.network import Training
from iam_lab.workers import completed, one_thread

SHOWN_RHO = 0.5
"""Radius of the perturbed decision boundaries; the paper's."""


@dataclass(frozen=True)
class Effort:
    """How much of the demo is run: ``Effort.quick()`` is for a look that takes seconds."""

    steps: int = 400
    blocks: int = 15
    toy_steps: int = 150
    restarts: int = 5

    @classmethod
    def quick(cls) -> Effort:
        """Enough to see that everything works, not enough to learn anything."""
        return cls(steps=20, blocks=2, toy_steps=30, restarts=1)


@dataclass(frozen=True)
class Toy:
    """The plane: a trained network, and the two perturbations of equal norm shown on it."""

    mixture: Mixture
    training: Training
    network: nn.Module = field(repr=False)
    delta: Delta = field(repr=False)
    noise: Delta = field(repr=False)
    points: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    changed_by_delta: float
    changed_by_noise: float


@dataclass(frozen=True)
class Result:
    """Everything the page shows.

    Attributes:
        runs: every run of every method.
        costs: time per step by method.
        tuned: the hyper-parameters, and what they were chosen from.
        effort: how much was run.
        toy: the plane.
        test_images: how many images the errors are over.
        seconds: from start to here.
        command: what was typed.
        machine: where.
    """

    runs: list[Run]
    costs: dict[str, Cost]
    tuned: Tuned
    effort: Effort
    toy: Toy
    test_images: int
    seconds: float
    command: str
    machine: str

    def of(self, key: str) -> list[Run]:
        """The runs of a method, by seed."""
        return sorted((one for one in self.runs if one.key == key), key=lambda one: one.seed)

    def error(self, key: str) -> Mean:
        """Test error after the last step."""
        return mean([one.errors[-1] for one in self.of(key)])

    def inconsistency(self, key: str) -> Mean:
        """S_rho on the test images after the last step."""
        return mean([one.inconsistencies[-1] for one in self.of(key)])

    def gain(self, key: str) -> Mean:
        """Plain's test error minus this method's, seed by seed: same labels, same first weights."""
        pairs = zip(self.of("plain"), self.of(key), strict=True)
        return mean([plain.errors[-1] - other.errors[-1] for plain, other in pairs])

    def save(self, path: Path) -> None:
        """Write the numbers as JSON."""
        toy = {
            "mixture": asdict(self.toy.mixture),
            "training": asdict(self.toy.training),
            "rho": SHOWN_RHO,
            "changed_by_delta": self.toy.changed_by_delta,
            "changed_by_noise": self.toy.changed_by_noise,
        }
        summary = {
            one.key: {
                "test_error_percent": asdict(self.error(one.key)),
                "plain_minus_this_percent": asdict(self.gain(one.key)),
                "inconsistency": asdict(self.inconsistency(one.key)) | {"rho": RHO},
                "milliseconds_per_step": self.costs[one.key].milliseconds,
                "time_ratio_to_plain": self.costs[one.key].ratio,
                "options": self.tuned.options[one.key],
            }
            for one in METHODS
        }
        tuned = {"learning_rate": self.tuned.learning_rate, "weight_decay": self.tuned.weight_decay}
        content = {
            "command": self.command,
            "machine": self.machine,
            "seconds": self.seconds,
            "test_images": self.test_images,
            "effort": asdict(self.effort),
            "tuned": tuned,
            "methods": summary,
            "toy": toy,
            "runs": [asdict(one) for one in self.runs],
        }
        path.write_text(json.dumps(content, indent=1) + "\n")


def compute(
    tuned: Tuned,
    seeds: int,
    effort: Effort,
    workers: int,
    command: str,
    clock: Callable[[], float],
    progress: Callable[[str, int, int], None],
) -> Result:
    """Run everything; ``progress`` is told the stage, how much of it is done, and of how much."""
    schedule = tuned.schedule(effort.steps)
    # The dearest runs first, so that no core is left with one of them at the end.
    jobs = [
        Job(one.key, tuned.options[one.key], seed, schedule, restarts=effort.restarts)
        for one in reversed(METHODS)
        for seed in range(seeds)
    ]
    runs: list[Run] = []
    for _, found in completed(run, jobs, workers):
        runs.append(found)
        progress("training", len(runs), len(jobs))
    progress("timing a step", 0, 1)
    costs = time_steps(tuned.options, schedule, effort.blocks)
    progress("timing a step", 1, 1)
    toy = _toy(effort.toy_steps)
    runs.sort(key=lambda one: ([m.key for m in METHODS].index(one.key), one.seed))
    images = len(digits(0, "test").held_x)
    return Result(runs, costs, tuned, effort, toy, images, clock(), command, machine())


def _toy(steps: int) -> Toy:
    mixture, training = Mixture(), Training(steps=steps)
    points, labels = mixture.draw()
    with one_thread():
        network = training.run(points, labels)
        delta, start = one_step(network, points, SHOWN_RHO, seed=0), noise(network, SHOWN_RHO, seed=0)
        return Toy(
            mixture,
            training,
            network,
            delta,
            start,
            points,
            labels,
            changed(network, points, delta),
            changed(network, points, start),
        )
