"""What there is of a figure, and which runs it is drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iam_lab.recipes import Recipe
from iam_lab.report.cells import in_words
from iam_lab.report.evidence import Evidence, Run


@dataclass(frozen=True)
class Panel:
    """A drawn panel: the element, and what it shows from how many runs."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Picture:
    """A figure of the paper.

    Attributes:
        panels: what could be drawn.
        missing: what could not, in words.
        done: how many of its points or curves have runs.
        wanted: how many it has.
        title: where it stands beside a table.
    """

    panels: Sequence[Panel] = ()
    missing: Sequence[str] = ()
    done: int = 0
    wanted: int = 0
    title: str = ""


def drawn_from(evidence: Evidence, recipe: Recipe) -> tuple[list[Run], str]:
    """The runs that stand for a recipe in a curve, and what to say about them.

    Finished runs of the recipe as it is; failing that, unfinished ones; failing that, such as do otherwise
    than the recipe, all in the same way.
    """
    runs = evidence.of(recipe.name)
    as_it_is = [run for run in runs if run.comparable and run.metrics]
    finished = [run for run in as_it_is if run.status == "finished"]
    if finished:
        return finished, ""
    if as_it_is:
        return as_it_is, "unfinished"
    others: dict[str, list[Run]] = {}
    for run in runs:
        if run.metrics:
            others.setdefault(in_words(run.deviations), []).append(run)
    if not others:
        return [], ""
    told, most = max(others.items(), key=lambda item: len(item[1]))
    return most, told


def runs_text(count: int) -> str:
    """``1 run`` or ``n runs``.

    >>> runs_text(1), runs_text(3)
    ('1 run', '3 runs')
    """
    return "1 run" if count == 1 else f"{count} runs"
