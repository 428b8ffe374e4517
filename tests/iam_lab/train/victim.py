"""A process that trains and kills itself at the n-th event: a step, or a touch of a file."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.iam_lab.train.configs import tiny, tiny_fixmatch

from iam_lab.runs import files
from iam_lab.runs.folder import RunFolder
from iam_lab.train.run import train
from iam_lab.train.trainer import Trainer

CONFIGS = {"supervised": tiny(), "fixmatch": tiny_fixmatch()}


class Countdown:
    """Dies at the n-th event; counts them all where there is no n."""

    def __init__(self, fatal: int | None) -> None:
        self.fatal, self.count = fatal, 0

    def event(self) -> None:
        self.count += 1
        if self.count == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)


class MortalFile:
    """A file in which every write may be the last, half done."""

    def __init__(self, file: Any, countdown: Countdown) -> None:
        self.file, self.countdown = file, countdown

    def __enter__(self) -> MortalFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def write(self, content: Any) -> int:
        half = self.file.write(content[: max(1, len(content) // 2)])
        self.countdown.event()
        return int(half)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def mortal(countdown: Countdown) -> None:
    """Put an event before and after each step, and at every write, fsync and rename of a run's files."""

    def before(function: Any) -> Any:
        def called(*arguments: Any, **options: Any) -> Any:
            countdown.event()
            return function(*arguments, **options)

        return called

    def opened(path: Any, mode: str, **options: Any) -> MortalFile:
        countdown.event()
        return MortalFile(open(path, mode, **options), countdown)

    files.CHUNK = 1 << 15
    files.open = opened  # type: ignore[attr-defined]
    os.fsync, os.replace = before(os.fsync), before(os.replace)
    Trainer.advance = before(Trainer.advance)  # type: ignore[method-assign]
    Trainer.begin_epoch = before(Trainer.begin_epoch)  # type: ignore[method-assign]


def victim(folder: str, fatal: int | None, task: str = "supervised") -> None:
    """Train in ``folder``; the number of events is written beside it where none is fatal."""
    countdown = Countdown(fatal)
    mortal(countdown)
    train(RunFolder(Path(folder)), CONFIGS[task], recipe="tiny", device="cpu")
    Path(f"{folder}.events").write_text(str(countdown.count))


def bystander(folder: str) -> None:
    """Train in ``folder``, and be killed from outside."""
    train(RunFolder(Path(folder)), CONFIGS["supervised"], recipe="tiny", device="cpu")
