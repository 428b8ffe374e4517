"""How long a step takes, measured side by side."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from iam_lab.demo.data import digits
from iam_lab.demo.methods import METHODS
from iam_lab.demo.study import Job, Schedule, Training
from iam_lab.workers import one_thread


@dataclass(frozen=True)
class Cost:
    """Time of a training step.

    Attributes:
        milliseconds: the median over blocks of steps.
        ratio: to Plain's step in the same round of blocks, the median.
    """

    milliseconds: float
    ratio: float


def time_steps(
    options: dict[str, dict[str, float]], schedule: Schedule, blocks: int = 15, steps: int = 20
) -> dict[str, Cost]:
    """The cost of every method on one thread.

    The methods take turns, ``blocks`` times ``steps`` steps each, so that a machine that is slow for a
    while is slow for all.
    """
    data = digits(0, "test")
    with one_thread():
        runs = {m.key: Training(Job(m.key, options[m.key], 0, schedule), data) for m in METHODS}
        for training in runs.values():
            _block(training, steps)
        rounds = [{key: _block(training, steps) for key, training in runs.items()} for _ in range(blocks)]
    return {
        key: Cost(
            1000 * statistics.median(one[key] for one in rounds),
            statistics.median(one[key] / one["plain"] for one in rounds),
        )
        for key in runs
    }


def _block(training: Training, steps: int) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        training.step()
    return (time.perf_counter() - began) / steps
