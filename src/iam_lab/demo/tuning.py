"""The choice of hyper-parameters, on the validation images, and the file that keeps it with its numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from iam_lab.demo.study import Job, Schedule, run
from iam_lab.errors import LabError
from iam_lab.machine import machine
from iam_lab.report.statistics import Mean, mean
from iam_lab.workers import completed

FILE = Path(__file__).with_name("tuned.json")
FIRST_SEED = 100
"""Other labels and other weights than the demo's own runs, whose seeds start at 0."""

SCHEDULES = {"learning_rate": (0.03, 0.1, 0.3, 1.0), "weight_decay": (5e-4, 2e-3, 5e-3, 1e-2)}
RADII = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
OPTIONS: dict[str, dict[str, tuple[float, ...]]] = {
    "sam": {"rho": RADII},
    "iam-s": {"rho": RADII},
    "iam-d": {"rho": RADII, "beta": (0.1, 0.3, 1.0, 3.0)},
    "iam-d-unlabelled": {"rho": RADII, "beta": (0.1, 0.3, 1.0, 3.0)},
}


@dataclass(frozen=True)
class Trial:
    """One point of a grid.

    Attributes:
        key: the method's.
        options: what was tried: rho and beta, or for Plain learning rate and weight decay.
        error: mean validation error in percent.
        stderr: over the seeds.
        runs: number of seeds.
    """

    key: str
    options: dict[str, float]
    error: float
    stderr: float | None
    runs: int


@dataclass(frozen=True)
class Tuned:
    """What was chosen, and everything it was chosen from.

    Attributes:
        learning_rate: chosen for Plain, used for all.
        weight_decay: likewise.
        options: rho and beta of every method.
        trials: the whole grid.
        command: what wrote this.
        machine: where.
    """

    learning_rate: float
    weight_decay: float
    options: dict[str, dict[str, float]]
    trials: list[Trial]
    command: str
    machine: str

    def schedule(self, steps: int) -> Schedule:
        """The chosen schedule for so many steps."""
        return Schedule(steps, self.learning_rate, self.weight_decay)

    def chosen(self, key: str) -> Trial:
        """The trial whose values a method uses."""
        return _best([trial for trial in self.trials if trial.key == key])

    def save(self, path: Path) -> None:
        """Write the file."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path = FILE) -> Tuned:
        """Read the file."""
        try:
            fields: dict[str, Any] = json.loads(path.read_text())
            return cls(**fields | {"trials": [Trial(**trial) for trial in fields["trials"]]})
        except (OSError, ValueError, TypeError, KeyError) as wrong:
            raise LabError(
                f"{path} does not hold the demo's hyper-parameters ({wrong}). Write it: iam demo --tune"
            ) from wrong


def tune(
    schedule: Schedule,
    seeds: int,
    workers: int,
    command: str,
    progress: Callable[[str, int, int], None],
    grids: Mapping[str, Mapping[str, tuple[float, ...]]] = OPTIONS,
) -> Tuned:
    """Learning rate and weight decay for Plain first, then rho and beta of the others with these.

    Args:
        schedule: its number of steps counts.
        seeds: runs of every point of the grids.
        workers: processes.
        command: kept in the file.
        progress: told the stage, how many runs of it are done, and of how many.
        grids: what to try for each method.
    """

    def search(stage: str, points: list[tuple[str, dict[str, float], Schedule]]) -> list[Trial]:
        jobs = [
            Job(key, {} if key == "plain" else options, FIRST_SEED + seed, how, "validation", restarts=0)
            for key, options, how in points
            for seed in range(seeds)
        ]
        errors = [0.0] * len(jobs)
        for done, (position, result) in enumerate(completed(run, jobs, workers), start=1):
            errors[position] = result.errors[-1]
            progress(stage, done, len(jobs))
        means = [mean(errors[k : k + seeds]) for k in range(0, len(jobs), seeds)]
        return [_trial(key, options, at) for (key, options, _), at in zip(points, means, strict=True)]

    plain = search(
        "learning rate and weight decay",
        [("plain", values, _with(schedule, values)) for values in _points(SCHEDULES)],
    )
    best = _best(plain).options
    chosen = _with(schedule, best)
    others = search(
        "rho and beta",
        [(key, values, chosen) for key, grid in grids.items() for values in _points(grid)],
    )
    options = {key: _best([trial for trial in others if trial.key == key]).options for key in grids}
    return Tuned(
        **best, options={"plain": {}} | options, trials=plain + others, command=command, machine=machine()
    )


def _points(grid: Mapping[str, tuple[float, ...]]) -> list[dict[str, float]]:
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def _with(schedule: Schedule, values: dict[str, float]) -> Schedule:
    return replace(schedule, learning_rate=values["learning_rate"], weight_decay=values["weight_decay"])


def _trial(key: str, options: dict[str, float], at: Mean) -> Trial:
    return Trial(key, options, at.value, at.stderr, at.n)


def _best(trials: list[Trial]) -> Trial:
    """The smallest error; of equals the first."""
    return min(trials, key=lambda trial: trial.error)
