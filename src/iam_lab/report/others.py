"""Runs that fill no cell of the paper: digits, variants, studies, the user's own.

One group per data set and model; what was made from no recipe of this version, such as the runs of a study,
is a group by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iam_lab.recipes.measure_comparison import MEASURES
from iam_lab.report.cells import in_words
from iam_lab.report.evidence import Evidence, Run
from iam_lab.report.palette import dataset_name
from iam_lab.report.pictures.along import QUANTITIES, Source, curves_panel
from iam_lab.report.pictures.gap import gap_panel
from iam_lab.report.pictures.picture import Panel
from iam_lab.report.statistics import Mean, mean

OBJECTIVE_COLOURS = {
    "plain": "#595959",
    "sam": "#0072b2",
    "asam": "#3f9fd1",
    "iam-d": "#c04f00",
    "iam-s": "#00805c",
}

MOST_CURVES = 8  # more cannot be told apart
LEAST_POINTS = 8  # fewer have no tau worth a picture
HESSIAN = "measure=lambda_max_H"  # what a study measures and other runs do not


@dataclass(frozen=True)
class Entry:
    """Runs of one recipe that differ in their seeds alone.

    Attributes:
        name: of the recipe, with what was changed about it.
        runs: finished and not.
        last: test error of the last epoch over the finished ones.
        best: its minimum over epochs.
        selected: of the epoch that a validation split chose.
    """

    name: str
    runs: Sequence[Run]
    last: Mean | None
    best: Mean | None
    selected: Mean | None


@dataclass(frozen=True)
class Own:
    """A data set and a model."""

    title: str
    entries: Sequence[Entry]
    panels: Sequence[Panel]


def own_runs(evidence: Evidence) -> list[Own]:
    """The groups, in the order in which their runs were found."""
    groups: dict[str, dict[str, list[Run]]] = {}
    for run in evidence.runs:
        if run.recipe is None or not run.recipe.cells:
            told = in_words(run.deviations)
            name = f"{run.name} with {told}" if told else run.name
            title = f"{dataset_name(run.config.data.name)}, {run.config.model.name}"
            title += "" if run.recipe else f": {run.name}"
            groups.setdefault(title, {}).setdefault(name, []).append(run)
    return [_group(f"own-{index}", title, found) for index, (title, found) in enumerate(groups.items())]


def _group(identifier: str, title: str, found: dict[str, list[Run]]) -> Own:
    order = list(OBJECTIVE_COLOURS)
    found = dict(sorted(found.items(), key=lambda item: order.index(item[1][0].config.objective.name)))
    entries = [
        Entry(
            name,
            runs,
            _over(runs, "last.test_error"),
            _over(runs, "best.test_error"),
            _over(runs, "selected.test_error"),
        )
        for name, runs in found.items()
    ]
    drawn: list[Panel | None] = []
    if len(found) <= MOST_CURVES:
        drawn += [curves_panel(identifier, title, _sources(found), quantity) for quantity in QUANTITIES]
    finished = [run for runs in found.values() for run in runs if run.status == "finished"]
    if len(finished) >= LEAST_POINTS and all(run.value(MEASURES[HESSIAN]) is not None for run in finished):
        drawn += [
            gap_panel(identifier, title, finished, measure, where) for measure, where in MEASURES.items()
        ]
    return Own(title, entries, [panel for panel in drawn if panel])


def _sources(found: dict[str, list[Run]]) -> list[Source]:
    """A colour for each objective; the second and further entries of one are dashed."""
    sources: list[Source] = []
    for name, runs in found.items():
        colour = OBJECTIVE_COLOURS[runs[0].config.objective.name]
        finished = [run for run in runs if run.status == "finished"]
        told = "" if finished else "unfinished"
        dashed = any(source.colour == colour for source in sources)
        sources.append(Source(name, finished or runs, colour, told, dashed))
    return sources


def _over(runs: Sequence[Run], where: str) -> Mean | None:
    values = [run.value(where) for run in runs if run.status == "finished"]
    known = [value for value in values if value is not None]
    return mean(known) if known else None
