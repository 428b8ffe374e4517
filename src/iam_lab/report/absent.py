"""What was not run, short: a line for each table and figure of the paper, however much is missing of it."""

from __future__ import annotations

from collections.abc import Sequence

from iam_lab.report.content import Content, Section
from iam_lab.report.tables import Table

LISTED = 5  # how many missing things are named before the rest is counted
FEW = 3  # how many missing cells of a row are named


def absences(content: Content) -> list[tuple[str, str, str]]:
    """Label, title and what is missing of it, empty for all, in the paper's order; what is complete is left out."""
    return [
        (section.label, section.place.title, shortened(_missing(section)) if section.done else "")
        for section in content.sections
        if not section.done or _missing(section)
    ]


def _missing(section: Section) -> Sequence[str]:
    if section.table:
        return _cells(section.table)
    named = section.picture.missing if section.picture else ()
    lacking = section.wanted - section.done  # a figure of hundreds of runs does not name them
    return named or ([f"{lacking} of {section.wanted}"] if lacking > 0 else [])


def _cells(table: Table) -> list[str]:
    """Missing cells, a row at a time: a whole row by its name alone, many cells by their number."""
    named = []
    for row in table.rows:
        there = [column for column in table.columns if (row, column) in table.cells]
        missing = [column for column in there if table.cells[row, column].ours is None]
        name = f"{table.corner} {row}" if row[0].isdigit() else row
        if missing == there:
            named.append(name)
        elif missing:
            many = len(missing) > FEW
            told = f"{len(missing)} of {len(there)}" if many else " / ".join(missing)
            named.append(f"{name}: {told}")
    return named


def shortened(named: Sequence[str], most: int = LISTED) -> str:
    """The first few, and how many more.

    >>> shortened(["a", "b", "c"], most=2)
    'a; b; and 1 more'
    """
    more = [f"and {len(named) - most} more"] if len(named) > most else []
    return "; ".join([*named[:most], *more])
