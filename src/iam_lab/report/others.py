"""Runs that fill no cell of the paper: digits, few labels, variants, studies, the user's own.

One group per family of recipes, data set, model and task; what was made from no recipe of this version, such as
the runs of a study, is a group by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from iam_lab.recipes.family import Family
from iam_lab.recipes.measure_comparison import MEASURES
from iam_lab.recipes.registry import FAMILIES, recipes_of_family
from iam_lab.report.alike import alike, in_words
from iam_lab.report.evidence import Evidence, Run
from iam_lab.report.palette import dataset_name
from iam_lab.report.pictures.along import QUANTITIES, Source, curves_panel
from iam_lab.report.pictures.gap import gap_panel
from iam_lab.report.pictures.picture import Panel
from iam_lab.report.statistics import Mean, mean_known

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
        runs: the finished ones that count, one a seed.
        unfinished: the others.
        flags: which do not count.
    """

    name: str
    runs: Sequence[Run]
    unfinished: Sequence[Run]
    flags: Sequence[str]

    def over_seeds(self, where: str) -> Mean | None:
        """The mean of a number by its place, ``"last.test_error"``, over the finished runs."""
        return mean_known(run.value(where) for run in self.runs)


@dataclass(frozen=True)
class Own:
    """What belongs together: a family of recipes on a data set with a model.

    Attributes:
        title: which.
        notes: what a reader should know, in sentences.
        entries: in the order of the recipes.
        panels: drawn from the same runs.
    """

    title: str
    notes: Sequence[str]
    entries: Sequence[Entry]
    panels: Sequence[Panel]


def own_runs(evidence: Evidence) -> list[Own]:
    """The groups, in the order in which their runs were found."""
    groups: dict[str, list[Run]] = {}
    for run in evidence.runs:
        if run.recipe is None or not run.recipe.cells:
            groups.setdefault(_title(run), []).append(run)
    return [_own(f"own-{index}", title, found) for index, (title, found) in enumerate(groups.items())]


def _title(run: Run) -> str:
    config = run.config
    family = family_of(run)
    parts = [dataset_name(config.data.name), config.model.name]
    parts += [config.task] if config.task != "supervised" else []
    name = family.prefix if family else run.name
    return ", ".join(parts) if name == config.data.name else f"{name}: {', '.join(parts)}"


def family_of(run: Run) -> Family | None:
    """The family of a run's recipe; None where this version has no such recipe."""
    near = [family for family in FAMILIES if run.name.startswith(f"{family.prefix}-")]
    return max(near, key=lambda family: len(family.prefix)) if run.recipe and near else None


def _own(identifier: str, title: str, runs: Sequence[Run]) -> Own:
    entries = _entries(runs)
    drawn: list[Panel | None] = []
    if len(entries) <= MOST_CURVES:
        drawn += [curves_panel(identifier, title, _sources(entries), quantity) for quantity in QUANTITIES]
    finished = [run for entry in entries for run in entry.runs]
    if len(finished) >= LEAST_POINTS and all(run.value(MEASURES[HESSIAN]) is not None for run in finished):
        drawn += [
            gap_panel(identifier, title, finished, measure, where) for measure, where in MEASURES.items()
        ]
    return Own(title, _notes(runs), entries, [panel for panel in drawn if panel])


def _notes(runs: Sequence[Run]) -> list[str]:
    """What the family and its recipes say of themselves; a note that some recipes lack names those that have it."""
    family = family_of(runs[0])
    notes: dict[str, list[str]] = {}
    for run in sorted(runs, key=_place):
        note = run.recipe.note if run.recipe else ""
        if note and run.name not in notes.setdefault(note, []):
            notes[note].append(run.name)
    everyone = {run.name for run in runs}
    told = [family.title] if family else []
    told += [
        note if set(names) == everyone else f"{', '.join(names)}: {note}" for note, names in notes.items()
    ]
    return [_sentence(part, names=everyone) for part in told]


def _sentence(told: str, names: Collection[str]) -> str:
    """With a capital, but for the name of a recipe, and a full stop."""
    named = told.partition(":")[0].partition(",")[0] in names
    return (told if named else told[0].upper() + told[1:]).removesuffix(".") + "."


def _entries(runs: Sequence[Run]) -> list[Entry]:
    found: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(runs, key=_place):
        found.setdefault((run.name, in_words(run.deviations)), []).append(run)
    entries = []
    for (name, told), same in found.items():
        group = next(iter(alike([run for run in same if run.status == "finished"])), None)
        entries.append(
            Entry(
                name=f"{name} with {told}" if told else name,
                runs=group.runs if group else (),
                unfinished=[run for run in same if run.status == "unfinished"],
                flags=group.twice if group else (),
            )
        )
    return entries


def _place(run: Run) -> tuple[int, int]:
    """As the recipes stand in their family; runs of no recipe by their objective."""
    family = family_of(run)
    names = [recipe.name for recipe in recipes_of_family(family.prefix)] if family else []
    order = list(OBJECTIVE_COLOURS).index(run.config.objective.name)
    return (names.index(run.name) if run.name in names else -1, order)


def _sources(entries: Sequence[Entry]) -> list[Source]:
    """A colour for each objective; the second and further entries of one are dashed."""
    sources: list[Source] = []
    for entry in entries:
        runs = entry.runs or entry.unfinished
        colour = OBJECTIVE_COLOURS[runs[0].config.objective.name]
        dashed = any(source.colour == colour for source in sources)
        sources.append(Source(entry.name, runs, colour, "" if entry.runs else "unfinished", dashed))
    return sources
