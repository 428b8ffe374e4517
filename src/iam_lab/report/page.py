"""The report as one HTML page that needs nothing beside itself."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from iam_lab.report.absent import shortened
from iam_lab.report.content import Content, Section
from iam_lab.report.evidence import Evidence
from iam_lab.report.listing import Listing, list_own, list_table
from iam_lab.report.markup import Markup, items, joined, table, tag
from iam_lab.report.origin import origin
from iam_lab.report.others import Own
from iam_lab.report.page_cells import table_of
from iam_lab.report.pictures.picture import Panel, Picture, runs_text
from iam_lab.report.runlist import run_rows

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
        tag("main", *_sections(content)),
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
    facts = [joined([tag("b", f"{name}: "), said]) for name, said in origin(evidence)]
    if content.command:
        facts.insert(0, joined([tag("b", "Written by: "), tag("code", content.command)]))
    parts.append(items(facts, css="origin"))
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
        *(_entry(s.label, s.place.title, f"{s.done}/{s.wanted}") for s in content.sections if s.begun),
        *(_entry(own.title, own.title, str(sum(len(e.runs) for e in own.entries))) for own in content.own),
        *(_entry(s.label, s.place.title, f"0/{s.wanted}") for s in content.sections if not s.begun),
        _entry("runs", "Runs", str(len(content.evidence.runs))),
    ]
    return tag("nav", items(entries))


def _entry(label: str, title: str, count: str) -> Markup:
    return joined([tag("a", title, href=f"#{_anchor(label)}"), tag("span", count, css="count")])


def _sections(content: Content) -> list[Markup]:
    """What has runs before what has none, which would hide it."""
    return [
        *(_section(section) for section in content.sections if section.begun),
        *_own(content.own),
        *(_section(section) for section in content.sections if not section.begun),
        *_runs(content),
    ]


def _section(section: Section) -> Markup:
    parts: list[str | Markup] = [
        tag("h2", section.place.title, tag("span", section.label, css="label")),
    ]
    if section.caveat:
        parts.append(tag("p", section.caveat, css="caveat"))
    if section.table:
        parts.append(table_of(section.table))
        behind = list_table(section.table)
        if behind.rows:
            title = "Behind these numbers: last epoch and minimum, time, device"
            listed = _listing(behind, f"{section.label}, in full", css="listed behind")
            parts.append(tag("details", tag("summary", title), listed))
    if section.picture:
        if section.picture.title:
            parts.append(tag("h3", section.picture.title))
        parts.append(_figures(section.picture.panels))
        if not section.table:
            parts.append(_missing(section.picture))
    return tag("section", *parts, id=_anchor(section.label))


def _figures(panels: Sequence[Panel]) -> Markup:
    """Side by side; an even number that threes would leave one over of stands in pairs."""
    drawn = [tag("figure", Markup(panel.svg), tag("figcaption", panel.caption)) for panel in panels]
    paired = len(drawn) % 2 == 0 and len(drawn) % 3 > 0
    return tag("div", *drawn, css="figures pairs" if paired else "figures") if drawn else Markup("")


def _missing(picture: Picture) -> Markup:
    if not picture.missing:
        return Markup("")
    return tag("p", tag("b", "Missing: "), f"{shortened(picture.missing, most=LISTED)}.", css="soft")


def _own(groups: Sequence[Own]) -> list[Markup]:
    return [
        tag(
            "section",
            tag("h2", own.title, tag("span", "not in the paper", css="label")),
            tag("p", " ".join(own.notes), css="caveat") if own.notes else "",
            _listing(list_own(own), own.title),
            _figures(own.panels),
            id=_anchor(own.title),
        )
        for own in groups
    ]


def _listing(listing: Listing, label: str, css: str = "listed") -> Markup:
    head = [name if len(name) == 1 else name[0].upper() + name[1:] for name in listing.head]  # n stays n
    return table(head, listing.rows, css=css, label=label)


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


def _anchor(label: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in label)
