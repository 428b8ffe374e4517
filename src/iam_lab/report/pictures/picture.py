"""What there is of a figure, and which runs it is drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iam_lab.recipes import Recipe
from iam_lab.report.alike import Alike, alike
from iam_lab.report.evidence import Evidence, Run

NAMED = 3  # how many runs that do not count a caption names before it counts the rest


@dataclass(frozen=True)
class Panel:
    """A drawn panel: the element, what it shows from how many runs, and the same title as in the drawing."""

    svg: str
    caption: str
    title: str = ""


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


def drawn_from(evidence: Evidence, recipe: Recipe) -> tuple[Sequence[Run], str]:
    """The runs that stand for a recipe in a curve, and what to say about them.

    The finished runs that a table compares; failing that, unfinished ones; failing that, such as do otherwise
    than the recipe. Always runs that differ in their seeds alone.
    """
    runs = [run for run in evidence.of(recipe.name) if run.metrics]
    finished = alike([run for run in runs if run.status == "finished"])
    begun = alike([run for run in runs if run.status == "unfinished"])
    groups = sorted([*finished, *begun], key=lambda group: not group.comparable)
    if not groups:
        return [], ""
    group = groups[0]
    state = [] if group.runs[0].status == "finished" else ["unfinished"]
    return group.runs, ", ".join([*state, *told_of(group)])


def told_of(group: Alike) -> list[str]:
    """What a caption says about runs: what they do otherwise, and which seeds were run twice."""
    more = len(group.left_out) - NAMED
    return [
        *([f"with {group.deviations}"] if group.deviations else []),
        *group.twice[:NAMED],
        *([f"and {more} more"] if more > 0 else []),
    ]


def runs_text(count: int) -> str:
    """``1 run`` or ``n runs``.

    >>> runs_text(1), runs_text(3)
    ('1 run', '3 runs')
    """
    return "1 run" if count == 1 else f"{count} runs"
