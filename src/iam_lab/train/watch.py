"""Who looks on while a run trains."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from iam_lab.lazy import require


@dataclass(frozen=True)
class Progress:
    """Where a run is.

    Attributes:
        epoch: in progress, from 1.
        epochs: in all.
        step: steps done.
        steps: in all.
        values: means over the epoch so far.
        steps_per_second: of late.
        seconds_left: of training, at that speed.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    values: Mapping[str, float | None]
    steps_per_second: float
    seconds_left: float


class Watcher(Protocol):
    """Looks on; a service that collects metrics is one too."""

    def progress(self, progress: Progress) -> None:
        """About twice a second."""

    def epoch(self, line: Mapping[str, Any], epochs: int) -> None:
        """The line of metrics of an epoch."""

    def close(self) -> None:
        """The run ended, in whatever way."""


class Bar:
    """A bar in a terminal: loss, error, S, steps per second and time left."""

    def __init__(self, title: str) -> None:
        rich = require("rich.progress", extra="lab", purpose="The progress bar")
        self.bar = rich.Progress(
            rich.TextColumn("{task.description}"),
            rich.BarColumn(bar_width=None),
            rich.TextColumn("{task.fields[told]}"),
            rich.TextColumn("{task.fields[left]}"),
            console=require("rich.console", extra="lab", purpose="The progress bar").Console(stderr=True),
        )
        self.title = title
        self.task = self.bar.add_task(title, total=None, told="", left="")
        self.bar.start()

    def progress(self, progress: Progress) -> None:
        """Move the bar."""
        told = [f"epoch {progress.epoch}/{progress.epochs}", *told_of(progress.values)]
        told.append(f"{progress.steps_per_second:.3g} steps/s")
        self.bar.update(
            self.task,
            total=progress.steps,
            completed=progress.step,
            told="  ".join(told),
            left=f"{clock(progress.seconds_left)} left",
        )

    def epoch(self, line: Mapping[str, Any], epochs: int) -> None:
        """A line above the bar."""
        self.bar.console.print(summary_line(line, epochs), highlight=False)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self.bar.stop()


class Lines:
    """A line an epoch, for a log file."""

    def progress(self, progress: Progress) -> None:
        """Too much for a file."""

    def epoch(self, line: Mapping[str, Any], epochs: int) -> None:
        """Print it."""
        sys.stderr.write(summary_line(line, epochs) + "\n")

    def close(self) -> None:
        """Nothing to do."""


class TensorBoard:
    """Every metric of every epoch as a scalar, in the folder ``tensorboard`` of the run."""

    def __init__(self, folder: Path, first_epoch: int) -> None:
        tensorboard = require("torch.utils.tensorboard", extra="track", purpose="--tensorboard")
        # What a killed run wrote after its last checkpoint is about to be written again.
        self.writer = tensorboard.SummaryWriter(str(folder / "tensorboard"), purge_step=first_epoch)

    def progress(self, progress: Progress) -> None:
        """Only whole epochs are kept, so that a resumed run draws the same curves."""

    def epoch(self, line: Mapping[str, Any], epochs: int) -> None:
        """Write it."""
        for name, value in {**line, **line.get("timing", {})}.items():
            if isinstance(value, int | float) and name != "epoch":
                self.writer.add_scalar(name, value, line["epoch"])
        self.writer.flush()

    def close(self) -> None:
        """Close the file."""
        self.writer.close()


SHOWN = {
    "train_loss": "loss {:.4f}",
    "train_error": "train error {:.2f} %",
    "train_s_rho": "S {:.3g}",
    "validation_error": "validation error {:.2f} %",
    "test_error": "test error {:.2f} %",
    "s_rho": "held-out S {:.3g}",
}
"""Which metrics people look at, and how they are written."""


def told_of(values: Mapping[str, Any]) -> list[str]:
    """Those of the shown metrics that are there.

    >>> told_of({"train_loss": 0.25, "test_error": 3.0, "lr": 0.1})
    ['loss 0.2500', 'test error 3.00 %']
    """
    return [text.format(values[name]) for name, text in SHOWN.items() if values.get(name) is not None]


def summary_line(line: Mapping[str, Any], epochs: int) -> str:
    """An epoch in a line."""
    timing = line.get("timing", {})
    told = [f"epoch {line['epoch']}/{epochs}", *told_of(line)]
    if timing.get("train_seconds") is not None:
        told.append(f"{timing['train_seconds']:.3g} s")
    return "  ".join(told)


def clock(seconds: float) -> str:
    """Hours and minutes.

    >>> clock(75), clock(3 * 3600 + 61)
    ('1:15', '3:01:01')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
