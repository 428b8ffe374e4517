"""The report as one HTML page that needs nothing beside itself."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from iam_lab.report.cells import Filled, Group
from iam_lab.report.content import Content, Section
from iam_lab.report.evidence import Evidence
from iam_lab.report.markup import Markup, items, joined, table, tag
from iam_lab.report.others import Own
from iam_lab.report.pictures.picture import Panel, Picture, runs_text
from iam_lab.report.runlist import run_rows
from iam_lab.report.statistics import Mean, signed
from iam_lab.report.tables import Table

LISTED = 12  # how many missing things are named before the rest is counted
SHOWN = 40  # how many runs are listed without being asked for


def render(
    content: Content, title: str = "Inconsistency-aware minimization: our runs beside the paper"
) -> str:
    """The page."""
    style = Markup(files(__package__).joinpath("page.css").read_text(encoding="utf-8"))
    body = [
        tag("header", tag("h1", title), *_opening(content)),
        _contents(content),
        tag(
            "main", *(_section(section) for section in content.sections), *_own(content.own), *_runs(content)
        ),
        tag(
            "footer",
            "Means are over runs that differ in their seeds alone, ± the standard error (sample standard "
            "deviation over the root of n; a single run has none). Errors are the minimum over epochs, as in "
            "the paper, where nothing else is said; that flatters every method. Δ is ours minus the paper's, "
            "coloured where it is more than twice its standard error.",
        ),
    ]
    head = [
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", title),
        tag("style", style),
    ]
    page = tag("html", tag("head", *head), tag("body", *body), lang="en")
    return f"<!doctype html>\n{page}\n"


def _opening(content: Content) -> list[Markup]:
    evidence = content.evidence
    unfinished = len(evidence.runs) - content.finished
    filled = sum(section.done for section in content.sections if section.table)
    wanted = sum(section.wanted for section in content.sections if section.table)
    told = f"From {runs_text(content.finished)} that finished"
    told += f" and {unfinished} that did not" if unfinished else ""
    told += f": {filled} of the {wanted} cells in the paper's tables have a number of ours."
    parts = [tag("p", told)]
    if not evidence.runs:
        parts.append(
            tag(
                "p",
                "There are no runs yet, so everything below is missing. ",
                tag("code", "iam reproduce tab:1 --dataset cifar10"),
                " makes some; ",
                tag("code", "iam recipes"),
                " lists what there is.",
                css="notice",
            )
        )
    if evidence.problems:
        count = len({problem.folder for problem in evidence.problems})
        told = "1 folder" if count == 1 else f"{count} folders"
        link = tag("a", "Runs", href="#runs")
        parts.append(tag("p", f"{told} could not be read in full: see ", link, ".", css="notice"))
    return parts


def _contents(content: Content) -> Markup:
    entries = [
        joined(
            [
                tag("a", section.place.title, href=f"#{_anchor(section.label)}"),
                tag("span", f"{section.done}/{section.wanted}", css="count"),
            ]
        )
        for section in content.sections
    ]
    entries += [joined([tag("a", own.title, href=f"#{_anchor(own.title)}")]) for own in content.own]
    entries.append(
        joined(
            [
                tag("a", "Runs", href="#runs"),
                tag("span", str(len(content.evidence.runs)), css="count"),
            ]
        )
    )
    return tag("nav", items(entries))


def _section(section: Section) -> Markup:
    parts: list[str | Markup] = [
        tag("h2", section.place.title, tag("span", section.label, css="label")),
    ]
    caveat = section.place.caveat
    if section.table and section.table.paper_n:
        caveat = f"{caveat} The paper's n is {section.table.paper_n}."
    if caveat:
        parts.append(tag("p", caveat.strip(), css="caveat"))
    if section.table:
        parts.append(_table(section.table))
        parts.append(_epochs(section.table))
    if section.picture:
        if section.picture.title:
            parts.append(tag("h3", section.picture.title))
        parts.append(_figures(section.picture.panels))
        if not section.table:
            parts.append(_missing(section.picture))
    return tag("section", *parts, id=_anchor(section.label))


def _table(filled: Table) -> Markup:
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
    digits = _decimals(cell.paper.printed) if cell.paper else 2
    parts = []
    if cell.ours:
        parts += _group(cell.ours, digits)
    elif not cell.groups:
        missing = "not run" if cell.recipes else "no recipe"
        parts.append(tag("span", "begun" if cell.unfinished else missing, css="missing"))
    if cell.paper:
        runs = f" (n = {cell.paper.n})" if cell.paper.n and paper_n is None else ""
        parts.append(tag("span", f"paper {cell.paper}{runs}", css="paper"))
    if cell.difference:
        value, error = cell.difference
        told = f"Δ {signed(value, digits, error)}"
        css = "" if error is None or abs(value) <= 2 * error else " better" if value < 0 else " worse"
        parts.append(tag("span", told, css=f"difference{css}"))
    for group in cell.groups:
        if group is not cell.ours:
            parts += _group(group, digits)
    parts += [tag("span", told, css="flag") for told in (*cell.flags, *cell.unfinished)]
    return joined(parts)


def _group(group: Group, digits: int) -> list[Markup]:
    count = tag("span", f"n = {group.mean.n}", css="n")
    parts = [tag("div", group.mean.text(digits), " ", count, css="ours")]
    if group.deviations:
        parts.append(tag("span", f"with {group.deviations}", css="flag"))
    return parts


def _epochs(filled: Table) -> Markup:
    """Last epoch, minimum over epochs and the epoch that a validation split chose, where there are runs."""
    rows = []
    for (row, column), cell in filled.cells.items():
        for group in cell.groups:
            name = f"{row}, {column}" + (f", {group.deviations}" if group.deviations else "")
            seeds = " ".join(map(str, group.seeds))
            rows.append([name, _mean(group.last), _mean(group.mean), _mean(group.selected), seeds])
    if not rows:
        return Markup("")
    head = ["Cell", "Last epoch", "Minimum over epochs", "Chosen on validation", "Seeds"]
    shown = table(head, rows, css="listed", label=f"{filled.label}, by epoch")
    return tag("details", tag("summary", "Last, best and validation-selected epoch"), shown)


def _figures(panels: Sequence[Panel]) -> Markup:
    drawn = [tag("figure", Markup(panel.svg), tag("figcaption", panel.caption)) for panel in panels]
    return tag("div", *drawn, css="figures") if drawn else Markup("")


def _missing(picture: Picture) -> Markup:
    if not picture.missing:
        return Markup("")
    named = "; ".join(picture.missing[:LISTED])
    more = f"; and {len(picture.missing) - LISTED} more" if len(picture.missing) > LISTED else ""
    return tag("p", tag("b", "Missing: "), f"{named}{more}.", css="soft")


def _own(groups: Sequence[Own]) -> list[Markup]:
    shown = []
    for own in groups:
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
        head = ["Recipe", "n", "Last epoch", "Minimum over epochs", "Chosen on validation"]
        shown.append(
            tag(
                "section",
                tag("h2", own.title, tag("span", "not in the paper", css="label")),
                table(head, rows, css="listed", label=own.title),
                _figures(own.panels),
                id=_anchor(own.title),
            )
        )
    return shown


def _runs(content: Content) -> list[Markup]:
    evidence = content.evidence
    parts = [tag("h2", "Runs")]
    if evidence.problems:
        named = [
            joined([tag("code", problem.folder), ": ", problem.message]) for problem in evidence.problems
        ]
        parts += [tag("h3", "Could not be read in full"), items(named)]
    if evidence.runs:
        parts.append(_run_table(evidence))
    else:
        parts.append(tag("p", "None.", css="soft"))
    return [tag("section", *parts, id="runs")]


def _run_table(evidence: Evidence) -> Markup:
    head, rows = run_rows(evidence)
    shown = [
        [
            tag("code", row.folder),
            tag("span", row.status, css=f"status-{row.status}"),
            *row.cells,
            tag("span", row.deviations, css="flag") if row.deviations else "",
        ]
        for row in rows
    ]
    listed = table(head, shown, css="listed", label="all runs")
    if len(rows) <= SHOWN:
        return listed
    return tag("details", tag("summary", f"All {len(rows)} runs"), listed)


def _mean(value: Mean | None) -> str:
    return "–" if value is None else str(value)


def _decimals(printed: str) -> int:
    return len(printed.partition(".")[2])


def _anchor(label: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in label)
