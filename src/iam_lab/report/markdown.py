"""``docs/results.md``: our numbers beside the paper's, and what people have to say about them.

The page is written anew each time, but for what stands between the two discussion marks: that is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from iam_lab.errors import RunError
from iam_lab.report.absent import absences
from iam_lab.report.alike import in_words
from iam_lab.report.content import Content, Section
from iam_lab.report.evidence import Run
from iam_lab.report.listing import Listing, list_own, list_table
from iam_lab.report.origin import begun, commit_of, machine_of, origin
from iam_lab.report.others import Own, family_of
from iam_lab.report.pictures.picture import Panel

BEGIN = "<!-- discussion: what stands up to the end mark is written by hand and kept -->"
END = "<!-- discussion: end -->"
NOTHING_YET = "*Nothing is written here yet.*"


def render(content: Content, before: str | None = None) -> str:
    """The page.

    Args:
        content: what to report; figures are not used.
        before: the page as it is, whose discussion is kept; None for a first one.
    """
    shown = [section for section in content.sections if section.begun]
    parts = [
        "# Results",
        _head(content),
        "## Discussion",
        f"{BEGIN}\n\n{discussion(before)}\n\n{END}",
    ]
    parts += [part for section in shown for part in _section(section)]
    parts += [part for own in content.own for part in _own(own)]
    parts += ["## Not run", _not_run(content)]
    parts += ["## Runs", *_runs(content)]
    return "\n\n".join(parts) + "\n"


def _head(content: Content) -> str:
    unfinished = len(content.evidence.runs) - content.finished
    told = "is not at its end, and counts" if unfinished == 1 else "are not at their end, and count"
    rest = f"; {unfinished} more {told} nowhere" if unfinished else ""
    facts = [("Runs", f"{content.finished} finished{rest}"), *origin(content.evidence)]
    command = f"`{content.command}`" if content.command else "`iam report RUNS --markdown FILE`"
    said = (
        "What this project's own runs reached, beside what the paper reports. "
        f"{command} wrote this page from the folders of runs alone, and writes it anew; only what stands under "
        "*Discussion* is written by hand, and kept.\n\n"
        "Errors are test errors in percent. A number is the mean over n runs that differ in their seeds alone, ± its "
        "standard error, which a single run does not have. The paper's tables are the minimum over epochs, which "
        "flatters every method, so the last epoch stands beside it. Times include evaluation; several runs may have "
        "shared a machine.\n\n"
    )
    return said + "\n".join(f"- {name}: {_plain(fact)}" for name, fact in facts)


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
    if section.caveat:
        parts.append(section.caveat)
    if section.table:
        parts.append(_listing(list_table(section.table)))
    elif section.picture:
        parts.append(
            f"{section.done} of {section.wanted} points or curves have runs; the HTML page draws them."
        )
        parts.append("\n".join(f"- {_plain(_said(panel))}" for panel in section.picture.panels))
    return [part for part in parts if part]


def _said(panel: Panel) -> str:
    return f"{panel.title}: {panel.caption}" if panel.title else panel.caption


def _own(own: Own) -> list[str]:
    return [f"## {own.title}", " ".join(["Not in the paper.", *own.notes]), _listing(list_own(own))]


def _not_run(content: Content) -> str:
    """By table, short: whatever has no number of ours to compare."""
    lines = [
        f"- `{label}`, {title}" + (f". Missing: {told}" if told else "")
        for label, title, told in absences(content)
    ]
    intro = "Without a run of ours to set beside the paper's; where something is named, only that is missing:"
    return "\n".join([intro, "", *lines]) if lines else "Nothing is missing."


def _runs(content: Content) -> list[str]:
    """A row for the runs of one recipe, of a grid or of a study; the HTML page has one for each run."""
    parts = []
    if content.evidence.problems:
        named = [f"- `{problem.folder}`: {problem.message}" for problem in content.evidence.problems]
        parts.append("Could not be read in full:\n\n" + "\n".join(named))
    found: dict[tuple[str, str], list[Run]] = {}
    for run in content.evidence.runs:
        found.setdefault(_kind(run), []).append(run)
    if found:
        head = ["recipe", "runs", "unfinished", "seeds", "epochs", "begun", "commit", "machine"]
        rows = [_row(name, told, runs) for (name, told), runs in found.items()]
        if len({row[-1] for row in rows}) == 1:  # which the head of the page names
            head, rows = head[:-1], [row[:-1] for row in rows]
        parts.append(_listing(Listing(head, rows).trimmed))
    return parts or ["None."]


def _kind(run: Run) -> tuple[str, str]:
    family = family_of(run)
    if family is None:
        return run.name, ""
    return (f"{family.prefix}-*", "") if family.folded else (run.name, in_words(run.deviations))


def _row(name: str, told: str, runs: Sequence[Run]) -> list[str]:
    """Where these runs come from."""
    starts = [start for run in runs for start in run.starts]
    unfinished = sum(run.status == "unfinished" for run in runs)
    return [
        f"`{name}`" + (f" with {told}" if told else ""),
        str(len(runs)),
        str(unfinished) if unfinished else "",
        " ".join(map(str, sorted({run.config.seed for run in runs}))),
        " to ".join(map(str, sorted({min(run.epochs for run in runs), max(run.epochs for run in runs)}))),
        begun(starts),
        ", ".join(dict.fromkeys(filter(None, map(commit_of, starts)))),
        "; ".join(dict.fromkeys(filter(None, map(machine_of, starts)))),
    ]


def _listing(listing: Listing) -> str:
    return _grid(listing.head, listing.rows)


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
