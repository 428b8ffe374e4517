"""``docs/results.md``: our numbers beside the paper's, and what people have to say about them.

The page is written anew each time, but for what stands between the two discussion marks: that is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from iam_lab.errors import RunError
from iam_lab.report.cells import Filled
from iam_lab.report.content import Content, Section
from iam_lab.report.runlist import run_rows
from iam_lab.report.statistics import Mean, signed
from iam_lab.report.tables import Table

BEGIN = "<!-- discussion: what stands up to the end mark is written by hand and kept -->"
END = "<!-- discussion: end -->"
NOTHING_YET = "*Nothing is written here yet.*"
LISTED = 12


def render(content: Content, before: str | None = None) -> str:
    """The page.

    Args:
        content: what to report; figures are not used.
        before: the page as it is, whose discussion is kept; None for a first one.
    """
    parts = [
        "# Results",
        "Our numbers beside the paper's, from finished runs alone. `iam report RUNS --markdown FILE` wrote "
        "this page; what stands under *Discussion* is written by hand, and kept when the page is written anew.",
        "Errors are test errors in percent, the minimum over epochs as in the paper; means are over seeds, ± "
        "the standard error, which a single run does not have.",
        "## Discussion",
        f"{BEGIN}\n\n{discussion(before)}\n\n{END}",
    ]
    for section in content.sections:
        if section.done or any(_has_any(cell) for cell in _cells(section)):
            parts += _section(section)
    parts += _own(content)
    parts += ["## Not run", _not_run(content)]
    parts += ["## Runs", *_runs(content)]
    return "\n\n".join(parts) + "\n"


def discussion(before: str | None) -> str:
    """The hand-written part of a page.

    >>> discussion(None)
    '*Nothing is written here yet.*'
    >>> discussion(f"# Results {BEGIN} We think so. {END} ...")
    'We think so.'
    """
    if before is None or not before.strip():
        return NOTHING_YET
    start, end = before.find(BEGIN), before.find(END)
    if start < 0 or end < start:
        raise RunError(
            "The page lacks the marks around its discussion, so that writing it anew would lose what people "
            f"wrote. Put {BEGIN!r} before and {END!r} behind what is to be kept, or choose another file."
        )
    return before[start + len(BEGIN) : end].strip() or NOTHING_YET


def _section(section: Section) -> list[str]:
    parts = [f"## {section.place.title} (`{section.label}`)"]
    if section.place.caveat:
        parts.append(section.place.caveat)
    if section.table:
        parts.append(_table(section.table))
    elif section.picture:
        parts.append(
            f"{section.done} of {section.wanted} points or curves have runs; the page of figures shows them."
        )
        parts += [f"- {panel.caption}" for panel in section.picture.panels]
    return parts


def _table(table: Table) -> str:
    rows = []
    for (row, column), cell in table.cells.items():
        for group in cell.groups:
            flags = "; ".join([*([f"with {group.deviations}"] if group.deviations else []), *cell.flags])
            difference = _difference(cell) if group is cell.ours else ""
            paper = str(cell.paper) if cell.paper else ""
            rows.append(
                [
                    row,
                    column,
                    str(group.mean),
                    str(group.mean.n),
                    _mean(group.last),
                    _mean(group.selected),
                    paper,
                    difference,
                    flags,
                ]
            )
        if not cell.groups and cell.unfinished:
            rows.append([row, column, "", "0", "", "", str(cell.paper or ""), "", "; ".join(cell.unfinished)])
    head = [table.corner, "", "ours", "n", "last epoch", "chosen on validation", "paper", "difference", ""]
    return _grid(head, rows)


def _own(content: Content) -> list[str]:
    parts: list[str] = []
    for own in content.own:
        rows = [
            [
                entry.name,
                str(sum(run.status == "finished" for run in entry.runs)),
                _mean(entry.last),
                _mean(entry.best),
                _mean(entry.selected),
            ]
            for entry in own.entries
        ]
        head = ["recipe", "n", "last epoch", "minimum over epochs", "chosen on validation"]
        parts += [f"## {own.title} (not in the paper)", _grid(head, rows)]
    return parts


def _not_run(content: Content) -> str:
    lines = []
    for section in content.sections:
        if section.table:
            missing = [
                f"{row} {column}" for (row, column), cell in section.table.cells.items() if not cell.ours
            ]
        else:
            missing = list(section.picture.missing) if section.picture else []
        if not missing:
            continue
        if section.done == 0 and not any(_has_any(cell) for cell in _cells(section)):
            lines.append(f"- `{section.label}`, {section.place.title}: nothing of it")
        else:
            more = f"; and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
            lines.append(f"- `{section.label}`: {'; '.join(missing[:LISTED])}{more}")
    return "\n".join(lines) or "Everything has been run."


def _runs(content: Content) -> list[str]:
    parts = []
    if content.evidence.problems:
        named = [f"- `{problem.folder}`: {problem.message}" for problem in content.evidence.problems]
        parts.append("Could not be read in full:\n\n" + "\n".join(named))
    if content.evidence.runs:
        head, rows = run_rows(content.evidence)
        parts.append(
            _grid(head, [[f"`{row.folder}`", row.status, *row.cells, row.deviations] for row in rows])
        )
    return parts or ["None."]


def _cells(section: Section) -> list[Filled]:
    return list(section.table.cells.values()) if section.table else []


def _has_any(cell: Filled) -> bool:
    return bool(cell.groups or cell.unfinished)


def _difference(cell: Filled) -> str:
    if cell.difference is None:
        return ""
    value, error = cell.difference
    return signed(value, 2, error)


def _mean(value: Mean | None) -> str:
    return "–" if value is None else str(value)


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""A table; a bar in a cell is written so that it does not end the cell.

    >>> print(_grid(["a", "b"], [["1|2", "<3"]]))
    | a | b |
    | --- | --- |
    | 1\|2 | &lt;3 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_plain(cell) for cell in line)} |" for line in lines)


def _plain(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
