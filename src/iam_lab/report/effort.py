"""What runs took: how long, and on what."""

from __future__ import annotations

from collections.abc import Sequence

from iam_lab.report.evidence import Run, finite
from iam_lab.report.statistics import mean_known


def time_of(runs: Sequence[Run]) -> str:
    """The mean time of a whole run, evaluation included; a dash where none is known."""
    found = mean_known(_seconds(run) for run in runs)
    return duration(found.value) if found else "–"


def devices_of(runs: Sequence[Run]) -> str:
    """The devices they last ran on, without the versions of drivers."""
    return ", ".join(dict.fromkeys(device_of(run) for run in runs))


def device_of(run: Run) -> str:
    """``cpu``, or what the GPU calls itself."""
    device = run.starts[-1].get("device") if run.starts else None
    return str(device).partition(", CUDA")[0] if device else "–"


def duration(seconds: float) -> str:
    """A time in the unit that a person would use.

    >>> duration(0.84), duration(42), duration(250), duration(40_000), duration(300_000)
    ('0.84 s', '42 s', '4.2 min', '11 h', '83 h')
    """
    for limit, unit, name in ((120.0, 1.0, "s"), (7200.0, 60.0, "min")):
        if seconds < limit:
            return f"{_two_digits(seconds / unit)} {name}"
    return f"{_two_digits(seconds / 3600)} h"


def _two_digits(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _seconds(run: Run) -> float | None:
    timing = run.summary.get("timing")
    return finite(timing.get("seconds")) if isinstance(timing, dict) else None
