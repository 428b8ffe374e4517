"""A cell of the paper, filled from runs: whose numbers count, what is compared, what is flagged.

Only finished runs count. Runs that do otherwise than their recipe in something the paper states are shown
by themselves and not compared. Where several recipes fill a cell (SGD at 200 and 400 epochs), the one with the
lower mean over its seeds counts, as in the paper: the better of each seed would be below both means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from iam_lab.recipes import Recipe, recipes_for
from iam_lab.recipes.paper import PaperNumber
from iam_lab.recipes.schema import Cell
from iam_lab.report.alike import Alike, alike
from iam_lab.report.evidence import Evidence, Run
from iam_lab.report.statistics import Mean, combined, mean_known


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds alone.

    Attributes:
        mean: of the number that the cell asks for.
        last: of the same number at the last epoch.
        selected: of the same number at the epoch that a validation split chose.
        deviations: what these runs do otherwise than the recipe, in words; empty for the recipe itself.
        comparable: whether the paper's number may stand beside it.
        runs: that were averaged, one a seed.
        note: where several recipes fill the cell, which one this is and what the others have.
    """

    mean: Mean
    last: Mean | None
    selected: Mean | None
    deviations: str
    comparable: bool
    runs: Sequence[Run]
    note: str = ""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Which."""
        return tuple(run.config.seed for run in self.runs)


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
    def digits(self) -> int:
        """How many decimals the paper prints."""
        return len(self.paper.printed.partition(".")[2]) if self.paper else 2

    @property
    def difference(self) -> tuple[float, float | None] | None:
        """Ours minus the paper's, and the standard error of that."""
        if self.ours is None or self.paper is None:
            return None
        found = self.ours.mean
        return found.value - self.paper.mean, combined(found.stderr, self.paper.stderr)

    @property
    def verdict(self) -> Literal["", "better", "worse"]:
        """How we compare, where the difference is more than twice its standard error."""
        value, error = self.difference or (0.0, None)
        if self.paper is None or error is None or abs(value) <= 2 * error:
            return ""
        return "better" if (value < 0) != self.paper.metric.endswith("accuracy") else "worse"


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


@dataclass(frozen=True)
class _Part:
    """The runs of one recipe in a cell, and where their number is."""

    recipe: Recipe
    cell: Cell
    alike: Alike

    def over_seeds(self, which: str | None = None) -> Mean | None:
        """The mean of what the cell asks for, at that epoch."""
        return mean_known(number_of(run, self.cell, which) for run in self.alike.runs)

    @property
    def rank(self) -> float:
        """The mean test error, so that top-1 and top-5 of a row are of the same runs."""
        which = self.cell.ours.partition(".")[0]
        found = mean_known(run.value(f"{which}.test_error") for run in self.alike.runs)
        return found.value if found else math.inf

    @property
    def flags(self) -> list[str]:
        """What a reader should know about these seeds."""
        meant = self.recipe.seeds
        strange = [run.config.seed for run in self.alike.runs if run.config.seed >= meant]
        told = [f"seed {seed} is not one of the recipe's 0 to {meant - 1}" for seed in strange]
        return [*self.alike.twice, *told]


def _groups(evidence: Evidence, places: Sequence[tuple[Recipe, Cell]]) -> tuple[list[Group], list[str]]:
    flags: list[str] = []
    parts: list[_Part] = []
    for recipe, cell in places:
        known = []
        for run in evidence.of(recipe.name):
            if run.status == "finished" and number_of(run, cell) is None:
                flags.append(f"{run.folder} has no {cell.ours}")
            elif run.status == "finished":
                known.append(run)
        parts += [_Part(recipe, cell, group) for group in alike(known)]
    flags += [told for part in parts for told in part.flags]
    found: dict[tuple[str, bool], list[_Part]] = {}
    for part in sorted(parts, key=lambda part: part.alike.order):
        found.setdefault((part.alike.deviations, part.alike.comparable), []).append(part)
    ranked = list(found.values())
    if ranked and ranked[0][0].alike.comparable:
        flags += _lacking(ranked[0], parts, [recipe for recipe, _ in places])
    return [_group(same) for same in ranked], flags


def _lacking(compared: Sequence[_Part], parts: Sequence[_Part], recipes: Sequence[Recipe]) -> list[str]:
    """The recipes of a cell that the compared runs were not the better of."""
    there = {part.recipe.name for part in compared}
    otherwise = {part.recipe.name for part in parts}
    return [
        f"{recipe.name} not run{' in the same way' if recipe.name in otherwise else ''}; "
        "the paper takes the better one"
        for recipe in recipes
        if recipe.name not in there
    ]


def _group(parts: Sequence[_Part]) -> Group:
    """Of the recipes that fill a cell, the one with the lower mean, with all its numbers."""
    best, *others = sorted(parts, key=lambda part: part.rank)
    centre = best.over_seeds()
    assert centre is not None  # runs without the number were left out
    beaten = [
        f"{part.recipe.name}: {found} (n = {found.n})" for part in others if (found := part.over_seeds())
    ]
    return Group(
        mean=centre,
        last=best.over_seeds("last"),
        selected=best.over_seeds("selected"),
        deviations=best.alike.deviations,
        comparable=best.alike.comparable,
        runs=best.alike.runs,
        note=f"{best.recipe.name}, the better mean; {'; '.join(beaten)}" if beaten else "",
    )


def _unfinished(evidence: Evidence, places: Sequence[tuple[Recipe, Cell]]) -> list[str]:
    told = []
    for recipe, cell in places:
        for run in evidence.of(recipe.name):
            if run.status == "unfinished":
                value = number_of(run, cell, "last")
                so_far = f", {value:.2f} so far" if value is not None else ""
                told.append(f"seed {run.config.seed} unfinished after epoch {run.epochs}{so_far}")
    return told
