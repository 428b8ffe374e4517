"""Every run in a row: how far it came, what it reached, with what it was made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iam_lab.report.alike import in_words
from iam_lab.report.evidence import Evidence, Run, finite
from iam_lab.report.origin import commit_of

HEAD = ("Folder", "Status", "Epochs", "Last", "Least", "Chosen", "s / epoch", "Device", "Commit", "Deviates")


@dataclass(frozen=True)
class Row:
    """A run, in words."""

    folder: str
    status: str
    cells: Sequence[str]
    deviations: str


def run_rows(evidence: Evidence) -> tuple[Sequence[str], list[Row]]:
    """The head of the table and its rows, in the order in which the runs were found."""
    return HEAD, [_row(run) for run in evidence.runs]


def _row(run: Run) -> Row:
    start = run.starts[-1] if run.starts else {}
    cells = [
        f"{run.epochs} of {run.config.training.epochs}"
        if run.config.training.steps is None
        else str(run.epochs),
        _error(run.value("last.test_error")),
        _error(run.value("best.test_error")),
        _error(run.value("selected.test_error")),
        _seconds(run),
        str(start.get("device") or "–"),
        commit_of(start) or "–",
    ]
    unknown = "" if run.recipe else f"no recipe {run.name!r} in this version"
    return Row(run.folder, run.status, cells, in_words(run.deviations) or unknown)


def _error(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _seconds(run: Run) -> str:
    timing = run.summary.get("timing")
    value = finite(timing.get("train_seconds_per_epoch")) if isinstance(timing, dict) else None
    return "–" if value is None else f"{value:.3g}"
