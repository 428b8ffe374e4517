"""What page and Markdown both list, as words: every number behind a table, and the runs outside the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iam_lab.report.cells import Filled, Group
from iam_lab.report.effort import devices_of, time_of
from iam_lab.report.others import Own
from iam_lab.report.statistics import Mean, signed
from iam_lab.report.tables import Table

NOTHING = ("", "–")


@dataclass(frozen=True)
class Listing:
    """Columns with their names."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def trimmed(self) -> Listing:
        """Without the columns in which nothing stands.

        >>> Listing(["a", "b", "c"], [["1", "–", "2"], ["3", "", ""]]).trimmed.head
        ['a', 'c']
        """
        kept = [i for i in range(len(self.head)) if any(row[i] not in NOTHING for row in self.rows)]
        return Listing([self.head[i] for i in kept], [[row[i] for i in kept] for row in self.rows])


def list_table(table: Table) -> Listing:
    """Each group of runs of each cell: last epoch, minimum, validation-selected; paper; time and device."""
    head = [
        *(table.corner, table.across, "n", "minimum over epochs", "last epoch", "chosen on validation"),
        *("paper", "ours − paper", "time a run", "device", "remarks"),
    ]
    rows = []
    for place, cell in table.cells.items():
        rows += [[*place, *_group(cell, group)] for group in cell.groups]
        if cell.unfinished and not cell.groups:
            said = "; ".join(cell.unfinished)
            rows.append([*place, "0", "–", "–", "–", str(cell.paper or ""), "", "–", "–", said])
    return Listing(head, rows).trimmed


def _group(cell: Filled, group: Group) -> list[str]:
    first = group is cell.groups[0]
    difference = cell.difference if group is cell.ours else None
    seeds = " ".join(map(str, group.seeds))
    usual = group.seeds == tuple(range(len(group.seeds)))
    remarks = [
        f"with {group.deviations}" if group.deviations else "",
        group.note,
        *(cell.flags if first else ()),
        *(cell.unfinished if first else ()),
        "" if usual else f"seed{'s' if group.mean.n > 1 else ''} {seeds}",
    ]
    return [
        str(group.mean.n),
        _mean(group.mean, cell.digits),
        _mean(group.last, cell.digits),
        _mean(group.selected, cell.digits),
        str(cell.paper) if cell.paper and group.comparable else "",
        signed(difference[0], cell.digits, difference[1]) if difference else "",
        time_of(group.runs),
        devices_of(group.runs),
        "; ".join(remark for remark in remarks if remark),
    ]


def list_own(own: Own) -> Listing:
    """Test errors of runs that have no number of the paper beside them."""
    head = [
        *("recipe", "n", "last epoch", "minimum over epochs", "chosen on validation"),
        *("time a run", "device", "remarks"),
    ]
    rows = []
    for entry in own.entries:
        unfinished = f"{len(entry.unfinished)} unfinished" if entry.unfinished else ""
        rows.append(
            [
                entry.name,
                str(len(entry.runs)),
                *(_mean(entry.over_seeds(f"{which}.test_error")) for which in ("last", "best", "selected")),
                time_of(entry.runs),
                devices_of(entry.runs),
                "; ".join(part for part in (*entry.flags, unfinished) if part),
            ]
        )
    return Listing(head, rows).trimmed


def _mean(value: Mean | None, digits: int = 2) -> str:
    return "–" if value is None else value.text(digits)
