"""What people see of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from iam_lab.runs.folder import RunFolder
from iam_lab.train.watch import Bar, Lines, TensorBoard, Watcher

NAMES = {"last": "last", "best": "best", "selected": "selected on validation"}


def watchers_for(
    folder: RunFolder, title: str, *, quiet: bool = False, tensorboard: bool = False
) -> Callable[[int], Sequence[Watcher]]:
    """A bar in a terminal, lines elsewhere, TensorBoard on request."""

    def make(first_epoch: int) -> Sequence[Watcher]:
        watchers: list[Watcher] = []
        if not quiet:
            watchers.append(Bar(title) if sys.stderr.isatty() else Lines())
        if tensorboard:
            watchers.append(TensorBoard(folder.path, first_epoch))
        return watchers

    return make


def outcome(summary: Mapping[str, Any]) -> str:
    """The errors of a finished run in a line.

    >>> outcome({"last": {"epoch": 9, "test_error": 3.5}, "best": {"epoch": 7, "test_error": 3.25}})
    'test error 3.50 % (last, epoch 9), 3.25 % (best, epoch 7)'
    """
    told = []
    for key, name in NAMES.items():
        line = summary.get(key)
        if line and line.get("test_error") is not None:
            told.append(f"{line['test_error']:.2f} % ({name}, epoch {line['epoch']})")
    skipped = summary.get("skipped_steps") or 0
    return (
        "test error "
        + ", ".join(told)
        + (f"; {skipped} steps were left out as not finite" if skipped else "")
    )
