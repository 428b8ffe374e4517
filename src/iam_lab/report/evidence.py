"""Runs as a report needs them: read from their folders, whatever state these are in.

A folder that cannot be read is named and left out; an unfinished run keeps what it has. Nothing here is
fatal: a report on a hundred runs must not fail for one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from iam_lab.errors import LabError, RecipeError, first_line
from iam_lab.recipes import Config, Recipe, find_recipe
from iam_lab.recipes.typed import changes
from iam_lab.runs import RunFolder, find_runs

Line = Mapping[str, Any]
"""The metrics of an epoch."""

HARMLESS = (
    "seed",
    "data.workers",
    "evaluation.batch_size",
    "evaluation.train_images",
    "measurement.",
    "training.channels_last",
    "training.compile",
    "training.cuda_graph",
    "training.deterministic",
    "training.accumulate",
)
"""Fields (or groups of them) that say how a run is executed or watched, not what is learned."""


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        folder: where it lies, as it was named to the report.
        name: of the recipe it was made from.
        recipe: that recipe; None where this version has none of the name.
        config: all it depends on.
        metrics: a line an epoch.
        status: whether it came to its end.
        last: the line of the last epoch.
        best: of the least test error.
        selected: of the least validation error; None without a validation split.
        deviations: what differs from the recipe and matters, by dotted path; of a recipe that is not known
            here, what the run itself says.
        starts: each start of the process: time, commit, versions, machine, device.
        summary: the rest of what a finished run says of itself.
    """

    folder: str
    name: str
    recipe: Recipe | None
    config: Config
    metrics: Sequence[Line]
    status: Literal["finished", "unfinished"]
    last: Line | None
    best: Line | None
    selected: Line | None
    deviations: Mapping[str, Any]
    starts: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]

    @property
    def comparable(self) -> bool:
        """Whether the paper's number may stand beside it: what deviates is what the paper leaves unstated."""
        unstated = self.recipe.unstated if self.recipe else {}
        return self.recipe is not None and all(path in unstated for path in self.deviations)

    @property
    def epochs(self) -> int:
        """How many epochs are done."""
        return int(self.metrics[-1]["epoch"]) if self.metrics else 0

    def value(self, where: str) -> float | None:
        """A finite number by its place, ``"best.test_error"``.

        >>> no_run = Run("", "", None, Config(), [], "unfinished", {"test_error": 4.0}, None, None, {}, [], {})
        >>> no_run.value("last.test_error"), no_run.value("best.test_error")
        (4.0, None)
        """
        which, _, name = where.partition(".")
        line: Line | None = {"last": self.last, "best": self.best, "selected": self.selected}.get(which)
        return finite(line.get(name)) if line else None


@dataclass(frozen=True)
class Problem:
    """A folder that could not be read, or not in full."""

    folder: str
    message: str


@dataclass(frozen=True)
class Evidence:
    """All that was found."""

    runs: Sequence[Run]
    problems: Sequence[Problem]

    def of(self, recipe: str) -> list[Run]:
        """The runs made from a recipe."""
        return [run for run in self.runs if run.name == recipe]


def gather(roots: Sequence[Path]) -> Evidence:
    """Every run in these folders and below; a folder that does not exist is a problem, not an error."""
    runs: list[Run] = []
    problems: list[Problem] = []
    seen: set[Path] = set()
    for root in roots:
        if root.is_file():
            problems.append(Problem(str(root), "This is a file; runs are folders."))
            continue
        try:
            folders = list(find_runs(root))
        except LabError as error:
            problems.append(Problem(str(root), str(error)))
            continue
        for folder in folders:
            if folder.path.resolve() in seen:
                continue
            seen.add(folder.path.resolve())
            try:
                run, troubles = read(folder)
                runs.append(run)
                problems += [Problem(str(folder.path), trouble) for trouble in troubles]
            except (LabError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                problems.append(Problem(str(folder.path), _told(error, folder.path)))
    return Evidence(runs, problems)


def read(folder: RunFolder) -> tuple[Run, list[str]]:
    """One run, and what of it could not be read."""
    troubles: list[str] = []
    config = folder.config()
    name = folder.recipe
    try:
        recipe = find_recipe(name)
    except RecipeError:
        recipe = None
    try:
        metrics = [line for line in folder.metrics() if isinstance(line.get("epoch"), int)]
    except LabError as error:
        metrics = []
        troubles.append(_told(error, folder.path))
    summary: dict[str, Any] = {}
    if folder.finished:
        try:
            summary = folder.summary()
        except LabError as error:
            troubles.append(_told(error, folder.path))
    try:
        starts = folder.starts()
    except LabError as error:
        starts = []
        troubles.append(_told(error, folder.path))
    run = Run(
        folder=str(folder.path),
        name=name,
        recipe=recipe,
        config=config,
        metrics=metrics,
        status="finished" if summary else "unfinished",
        last=_line(summary, "last") or (metrics[-1] if metrics else None),
        best=_line(summary, "best") or _least(metrics, "test_error"),
        selected=_line(summary, "selected") or _least(metrics, "validation_error"),
        deviations=deviations(recipe, config) if recipe else told_changes(folder.changed),
        starts=[start for start in starts if isinstance(start, dict)],
        summary=summary,
    )
    return run, troubles


def deviations(recipe: Recipe, config: Config) -> dict[str, Any]:
    """What a run does otherwise than its recipe, where that matters for the result.

    >>> from iam_lab.recipes.typed import replaced
    >>> recipe = find_recipe("tab1-cifar10-sgd")
    >>> other = replaced(replaced(recipe.config, "training.epochs", 24), "data.workers", 2)
    >>> deviations(recipe, other)
    {'training.epochs': 24}
    """
    return told_changes(changes(recipe.config, config))


def told_changes(differing: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some changes that matter for the result.

    >>> told_changes({"optimizer.lr": 0.1, "training.compile": True})
    {'optimizer.lr': 0.1}
    """
    return {path: value for path, value in differing.items() if not path.startswith(HARMLESS)}


def finite(value: object) -> float | None:
    """``value`` where it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _line(summary: Mapping[str, Any], name: str) -> Line | None:
    line = summary.get(name)
    return line if isinstance(line, dict) else None


def _least(metrics: Sequence[Line], name: str) -> Line | None:
    known = [line for line in metrics if finite(line.get(name)) is not None]
    return min(known, key=lambda line: float(line[name])) if known else None


def _told(error: Exception, folder: Path) -> str:
    """The first line of a message, without the folder that stands before it anyway."""
    return first_line(error).replace(f"{folder}/", "")
