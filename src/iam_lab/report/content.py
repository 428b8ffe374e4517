"""What a report holds, before it becomes HTML or Markdown: every table and figure of the paper, in its order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from iam_lab.recipes.paper import PLACES, Place
from iam_lab.report.evidence import Evidence
from iam_lab.report.others import Own, own_runs
from iam_lab.report.pictures.along import error_with_steps_and_sub_batches, inconsistency_along_training
from iam_lab.report.pictures.efficiency import imagenet_efficiency, table_1_against_cost
from iam_lab.report.pictures.gap import measures_against_gap
from iam_lab.report.pictures.grids import heatmaps, radius_and_sub_batch, steps_and_sub_batch
from iam_lab.report.pictures.picture import Picture
from iam_lab.report.pictures.self_supervised import probe_on_both, probe_on_cifar10
from iam_lab.report.tables import LAYOUTS, Table, build_table

FIGURES: Mapping[str, Callable[[Evidence], Picture]] = {
    "fig:imagenet_efficiency": imagenet_efficiency,
    "fig:6": radius_and_sub_batch,
    "fig:heatmap": heatmaps,
    "fig:incon_sgd_vs_IAM": inconsistency_along_training,
    "fig:CIFAR_m_K_IAM_D": error_with_steps_and_sub_batches,
    "fig:measure_comparison": measures_against_gap,
    "fig:self_supervised_eval": probe_on_cifar10,
    "fig:self_supervised_total": probe_on_both,
}
"""Label to what draws it."""

BESIDE: Mapping[str, Callable[[Evidence], Picture]] = {
    "tab:1": table_1_against_cost,
    "tab:iam_wrn28": steps_and_sub_batch,
}
"""Pictures that the paper does not have, beside the table they show."""


@dataclass(frozen=True)
class Section:
    """One table or figure of the paper.

    Attributes:
        label: as in LaTeX.
        place: what it shows.
        table: filled; None for a figure.
        picture: drawn from runs; None for a table without one.
    """

    label: str
    place: Place
    table: Table | None
    picture: Picture | None

    @property
    def caveat(self) -> str:
        """What to know of the paper's numbers."""
        n = self.table.paper_n if self.table else None
        return f"{self.place.caveat} The paper's n is {n}.".strip() if n else self.place.caveat

    @property
    def done(self) -> int:
        """How many of its cells, points or curves have runs."""
        return self.table.done if self.table else self.picture.done if self.picture else 0

    @property
    def begun(self) -> bool:
        """Whether any run belongs here, finished and comparable or not."""
        cells = self.table.cells.values() if self.table else ()
        return self.done > 0 or any(cell.groups or cell.unfinished for cell in cells)

    @property
    def wanted(self) -> int:
        """How many it has in the paper."""
        return len(self.table.cells) if self.table else self.picture.wanted if self.picture else 0


@dataclass(frozen=True)
class Content:
    """The whole report.

    Attributes:
        evidence: what was found.
        sections: the paper's tables and figures.
        own: what the paper does not have.
        command: that wrote it; empty where nobody said.
    """

    evidence: Evidence
    sections: Sequence[Section]
    own: Sequence[Own]
    command: str = ""

    @property
    def finished(self) -> int:
        """How many runs came to their end."""
        return sum(run.status == "finished" for run in self.evidence.runs)


def compose(evidence: Evidence, command: str = "") -> Content:
    """Everything there is to say about these runs."""
    sections = []
    for label, place in PLACES.items():
        table = build_table(evidence, label) if label in LAYOUTS else None
        draw = FIGURES.get(label) or BESIDE.get(label)
        sections.append(Section(label, place, table, draw(evidence) if draw else None))
    return Content(evidence, sections, own_runs(evidence), command)
