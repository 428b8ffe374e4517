"""What remains of a finished run: last, best and selected epoch, counts, times."""

from __future__ import annotations

import math
import resource
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from iam_lab.recipes.schema import Config

Line = Mapping[str, Any]

TEST, VALIDATION = "test_error", "validation_error"


def chosen_by(config: Config) -> str:
    """The metric by which the weights that are kept are chosen.

    >>> chosen_by(Config())
    'test_error'
    """
    return VALIDATION if config.data.validation else TEST


def least(lines: Sequence[Line], metric: str) -> Line | None:
    """The first line with the least value of a metric.

    >>> least([{"epoch": 1, "e": 2.0}, {"epoch": 2, "e": 1.0}, {"epoch": 3}], "e")
    {'epoch': 2, 'e': 1.0}
    """
    judged = [line for line in lines if line.get(metric) is not None]
    return min(judged, key=lambda line: float(line[metric]), default=None)


def is_better(line: Line, before: Sequence[Line], metric: str) -> bool:
    """Whether a line has a lower value than all before it."""
    best = least(before, metric)
    return line.get(metric) is not None and (best is None or line[metric] < best[metric])


def summarized(
    recipe: str, config: Config, lines: Sequence[Line], parameters: int, starts: int
) -> dict[str, Any]:
    """The content of ``summary.json``.

    Args:
        recipe: its name.
        config: of the run.
        lines: the metrics of all epochs.
        parameters: number of weights.
        starts: how often the process was started.
    """
    last = lines[-1]
    return {
        "recipe": recipe,
        "seed": config.seed,
        "epochs": last["epoch"],
        "steps": last["step"],
        "last": last,
        "best": least(lines, TEST),
        "selected": least(lines, VALIDATION),
        "skipped_steps": last["skipped_steps"],
        "failed_ascents": last.get("failed_ascents"),
        "parameters": parameters,
        "timing": {
            "seconds": math.fsum(line["timing"]["seconds"] for line in lines),
            "train_seconds_per_epoch": _median(lines, "train_seconds"),
            "images_per_second": _median(lines, "images_per_second"),
            "peak_memory_gib": max(line["timing"]["peak_memory_gib"] for line in lines),
            "starts": starts,
        },
    }


def _median(lines: Sequence[Line], name: str) -> float | None:
    """Over the epochs that know it: a process that only evaluated has no speed."""
    known = [line["timing"][name] for line in lines if line["timing"][name] is not None]
    return statistics.median(known) if known else None


def peak_memory(device: torch.device) -> float:
    """Most memory held so far in GiB: by torch on a GPU, by the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # which Linux counts in KiB


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """NaN and infinity as null: JSON has neither."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
