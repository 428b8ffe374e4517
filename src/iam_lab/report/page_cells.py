"""A table of the paper as HTML: in each cell our number, the paper's, the difference, and what to know of it."""

from __future__ import annotations

from iam_lab.report.cells import Filled, Group
from iam_lab.report.markup import Markup, joined, table, tag
from iam_lab.report.statistics import signed
from iam_lab.report.tables import Table


def table_of(filled: Table) -> Markup:
    """The table as the paper has it."""
    rows = [
        [row, *(_cell(filled.cells.get((row, column)), filled.paper_n) for column in filled.columns)]
        for row in filled.rows
    ]
    return table([filled.corner, *filled.columns], rows, css="grid", label=filled.label)


def _cell(cell: Filled | None, paper_n: int | None) -> Markup:
    """A cell: what is compared, the paper's number, the difference, and then what stands apart.

    The paper's n stands in it only where it is not the same in the whole table.
    """
    if cell is None:
        return Markup("")
    parts = []
    if cell.ours:
        parts += _group(cell.ours, cell.digits)
    elif not cell.groups:
        missing = "not run" if cell.recipes else "no recipe"
        parts.append(tag("span", "begun" if cell.unfinished else missing, css="missing"))
    if cell.paper:
        runs = f" (n = {cell.paper.n})" if cell.paper.n and paper_n is None else ""
        parts.append(tag("span", f"paper {cell.paper}{runs}", css="paper"))
    if cell.difference:
        value, error = cell.difference
        told = f"Δ {signed(value, cell.digits, error)}"
        parts.append(tag("span", told, css=f"difference {cell.verdict}".strip()))
    for group in cell.groups:
        if group is not cell.ours:
            parts += _group(group, cell.digits)
    if cell.ours and cell.ours.note:
        parts.append(tag("span", cell.ours.note, css="note"))
    parts += [tag("span", told, css="flag") for told in (*cell.flags, *cell.unfinished)]
    return joined(parts)


def _group(group: Group, digits: int) -> list[Markup]:
    count = tag("span", f"n = {group.mean.n}", css="n")
    parts = [tag("div", group.mean.text(digits), " ", count, css="ours")]
    if group.deviations:
        parts.append(tag("span", f"with {group.deviations}", css="flag"))
    return parts
