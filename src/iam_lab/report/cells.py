"""A cell of the paper, filled from runs: whose numbers count, what is compared, what is flagged.

Only finished runs count. Runs that do otherwise than their recipe in something the paper states are shown
by themselves and not compared. Where several recipes fill a cell (SGD at 200 and 400 epochs), the better one
counts, seed by seed, as in the paper.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iam_lab.recipes import Recipe, recipes_for
from iam_lab.recipes.paper import PaperNumber
from iam_lab.recipes.schema import Cell
from iam_lab.report.evidence import Evidence, Run
from iam_lab.report.statistics import Mean, combined, mean


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds alone.

    Attributes:
        mean: of the number that the cell asks for.
        last: of the same number at the last epoch.
        selected: of the same number at the epoch that a validation split chose.
        deviations: what these runs do otherwise than the recipe, in words; empty for the recipe itself.
        comparable: whether the paper's number may stand beside it.
        seeds: which.
    """

    mean: Mean
    last: Mean | None
    selected: Mean | None
    deviations: str
    comparable: bool
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Filled:
    """A cell with what we have for it.

    Attributes:
        paper: the paper's number; None for a point of a picture.
        groups: ours, the recipe itself first.
        recipes: that fill it.
        flags: what a reader should know.
        unfinished: runs that have begun and not ended, in words.
    """

    paper: PaperNumber | None
    groups: Sequence[Group]
    recipes: Sequence[Recipe]
    flags: Sequence[str]
    unfinished: Sequence[str]

    @property
    def ours(self) -> Group | None:
        """The runs to compare; None where there are none."""
        return next((group for group in self.groups if group.comparable), None)

    @property
    def difference(self) -> tuple[float, float | None] | None:
        """Ours minus the paper's, and the standard error of that."""
        if self.ours is None or self.paper is None:
            return None
        found = self.ours.mean
        return found.value - self.paper.mean, combined(found.stderr, self.paper.stderr)


def fill(
    evidence: Evidence,
    label: str,
    dataset: str,
    method: str,
    at: str = "",
    metric: str = "error",
    model: str | None = None,
) -> Filled:
    """One cell of a table, or one point of a figure."""
    places = [
        (recipe, cell)
        for recipe in recipes_for(label, dataset)
        for cell in recipe.cells
        if (cell.label, cell.dataset, cell.method, cell.cell, cell.metric)
        == (label, dataset, method, at, metric)
        and model in (None, cell.model)
    ]
    groups, flags = _groups(evidence, places)
    paper = Cell(label, dataset, method, at, metric, model=model).paper
    return Filled(paper, groups, [recipe for recipe, _ in places], flags, _unfinished(evidence, places))


def number_of(run: Run, cell: Cell, which: str | None = None) -> float | None:
    """The number of a run that a cell asks for, in the paper's terms: accuracy where that is what it prints."""
    where = cell.ours if which is None else f"{which}.{cell.ours.partition('.')[2]}"
    value = run.value(where)
    return 100.0 - value if value is not None and cell.metric.endswith("accuracy") else value


def _groups(evidence: Evidence, places: Sequence[tuple[Recipe, Cell]]) -> tuple[list[Group], list[str]]:
    flags: list[str] = []
    alike: dict[str, dict[int, list[tuple[Run, Cell]]]] = {}
    for recipe, cell in places:
        seeds: set[tuple[str, int]] = set()
        for run in evidence.of(recipe.name):
            if run.status != "finished":
                continue
            if number_of(run, cell) is None:
                flags.append(f"{run.folder} has no {cell.ours}")
                continue
            told = in_words(run.deviations)
            if (told, run.config.seed) in seeds:
                flags.append(f"seed {run.config.seed} was run twice; {run.folder} is left out")
                continue
            seeds.add((told, run.config.seed))
            alike.setdefault(told, {}).setdefault(run.config.seed, []).append((run, cell))
            if run.config.seed >= recipe.seeds:
                flags.append(f"seed {run.config.seed} is not one of the recipe's 0 to {recipe.seeds - 1}")
    missing = [recipe.name for recipe, _ in places if not _exact(evidence, recipe)]
    if len(places) > 1 and 0 < len(missing) < len(places):
        flags.append(f"{', '.join(missing)} not run; the paper takes the better one")
    groups = [_group(told, by_seed) for told, by_seed in alike.items()]
    return sorted(groups, key=lambda group: (not group.comparable, bool(group.deviations))), flags


def _group(told: str, by_seed: Mapping[int, Sequence[tuple[Run, Cell]]]) -> Group:
    def over_seeds(which: str | None) -> Mean | None:
        best: list[float] = []
        for found in by_seed.values():
            values = [number_of(run, cell, which) for run, cell in found]
            known = [value for value in values if value is not None]
            if known:
                lower_is_better = not found[0][1].metric.endswith("accuracy")
                best.append(min(known) if lower_is_better else max(known))
        return mean(best) if best else None

    centre = over_seeds(None)
    assert centre is not None  # runs without the number were left out
    runs = [run for found in by_seed.values() for run, _ in found]
    return Group(
        mean=centre,
        last=over_seeds("last"),
        selected=over_seeds("selected"),
        deviations=told,
        comparable=all(run.comparable for run in runs),
        seeds=tuple(sorted(by_seed)),
    )


def _exact(evidence: Evidence, recipe: Recipe) -> bool:
    return any(run.status == "finished" and run.comparable for run in evidence.of(recipe.name))


def _unfinished(evidence: Evidence, places: Sequence[tuple[Recipe, Cell]]) -> list[str]:
    told = []
    for recipe, cell in places:
        for run in evidence.of(recipe.name):
            if run.status == "unfinished":
                value = number_of(run, cell, "last")
                so_far = f", {value:.2f} so far" if value is not None else ""
                told.append(f"seed {run.config.seed} unfinished after epoch {run.epochs}{so_far}")
    return told


def in_words(deviations: Mapping[str, object]) -> str:
    """Deviations as they are written on the command line.

    >>> in_words({"training.epochs": 24, "training.precision": "bf16"})
    'training.epochs=24, training.precision=bf16'
    """
    return ", ".join(
        f"{path}={value if isinstance(value, str) else json.dumps(value)}"
        for path, value in sorted(deviations.items())
    )
