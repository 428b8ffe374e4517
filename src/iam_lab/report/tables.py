"""The paper's tables, laid out as they are there, each cell with what we have for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from iam_lab.recipes.paper import PaperNumber, numbers
from iam_lab.report.cells import Filled, fill
from iam_lab.report.evidence import Evidence
from iam_lab.report.palette import dataset_name, look_of

METRICS: Mapping[str, str] = {
    "error": "Test error, %",
    "top1_error": "Top-1",
    "top5_error": "Top-5",
    "top1_accuracy": "Top-1 accuracy, %",
}


@dataclass(frozen=True)
class Layout:
    """Which of a number's keys name its row and which its column; ``corner`` and ``across`` say what they are."""

    corner: str
    across: str
    row: Callable[[PaperNumber], str]
    column: Callable[[PaperNumber], str]


@dataclass(frozen=True)
class Table:
    """A table of the paper, filled.

    Attributes:
        label: as in LaTeX.
        corner: what the rows are.
        across: what the columns are.
        rows: their names, in the paper's order.
        columns: likewise.
        cells: by row and column.
        paper_n: the number of runs behind each of the paper's cells, where it is the same for all.
    """

    label: str
    corner: str
    across: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[tuple[str, str], Filled]
    paper_n: int | None

    @property
    def done(self) -> int:
        """How many cells have a number of ours to compare."""
        return sum(cell.ours is not None for cell in self.cells.values())


def _dataset(number: PaperNumber) -> str:
    return dataset_name(number.dataset)


def _method(number: PaperNumber) -> str:
    names = {"fixmatch": "FixMatch", "fixmatch-sam": "FixMatch + SAM", "fixmatch-iam-d": "FixMatch + IAM-D"}
    return names.get(number.method) or look_of(number.method).name


def _metric(number: PaperNumber) -> str:
    return METRICS[number.metric]


def _part(number: PaperNumber, name: str) -> str:
    """``"K=2"`` of the cell ``"K=2 m=32"``."""
    return next(part for part in number.cell.split() if part.startswith(f"{name}="))


LAYOUTS: Mapping[str, Layout] = {
    "tab:1": Layout("Data set", "Method", _dataset, _method),
    "tab:imagnet": Layout("Method", "Error", _method, _metric),
    "tab:imagnet_full": Layout(
        "Epochs", "Method", lambda n: f"{n.cell.removeprefix('epochs=')}, {_metric(n)}", _method
    ),
    "tab:vit_cifar10_iamd": Layout("Method", "Number", _method, _metric),
    "tab:cifar_comparison": Layout("Method", "Data set", _method, _dataset),
    "tab:cifar_comparison_mlpmixer": Layout("Method", "Data set", _method, _dataset),
    "tab:imagnet_VitS": Layout("Method", "Error", _method, _metric),
    "tab:iam_wrn28": Layout(
        "K", "Data set, m", lambda n: _part(n, "K")[2:], lambda n: f"{_dataset(n)}, {_part(n, 'm')}"
    ),
    "tab:semi_cifar": Layout(
        "Method",
        "Data set, labels",
        _method,
        lambda n: f"{_dataset(n)}, {n.cell.removeprefix('labels=')} labels",
    ),
    "tab:fix_match": Layout("Method", "Number", _method, _metric),
}
"""Label to layout; what is not here is a figure."""


def build_table(evidence: Evidence, label: str) -> Table:
    """A table with all its cells; running times are not compared, they belong to a machine.

    >>> table = build_table(Evidence([], []), "tab:1")
    >>> table.columns, table.done, len(table.cells)
    (['SGD', 'SAM', 'ASAM', 'IAM-D', 'IAM-S'], 0, 20)
    """
    layout = LAYOUTS[label]
    cells: dict[tuple[str, str], Filled] = {}
    for number in numbers(label):
        if number.metric in METRICS:
            key = (layout.row(number), layout.column(number))
            cells[key] = fill(evidence, label, number.dataset, number.method, number.cell, number.metric)
    rows = list(dict.fromkeys(row for row, _ in cells))
    columns = list(dict.fromkeys(column for _, column in cells))
    counts = {cell.paper.n for cell in cells.values() if cell.paper}
    paper_n = counts.pop() if len(counts) == 1 else None
    return Table(label, layout.corner, layout.across, rows, columns, cells, paper_n)
