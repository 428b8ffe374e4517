"""SimCLR along the training: the linear probe's test error, and the loss that is trained."""

from __future__ import annotations

from collections.abc import Sequence

from iam_lab.recipes import find_recipe
from iam_lab.recipes.self_supervised import DATASETS, METHODS
from iam_lab.report.evidence import Evidence
from iam_lab.report.palette import dataset_name, look_of
from iam_lab.report.pictures.along import Source, curves_panel
from iam_lab.report.pictures.picture import Picture, drawn_from

PANELS = {"test_error": "linear probe", "train_loss": "SimCLR"}


def probe_on_cifar10(evidence: Evidence) -> Picture:
    """fig:self_supervised_eval."""
    return _drawn(evidence, DATASETS[:1], "simclr-eval")


def probe_on_both(evidence: Evidence) -> Picture:
    """fig:self_supervised_total."""
    return _drawn(evidence, DATASETS, "simclr-total")


def _drawn(evidence: Evidence, datasets: Sequence[str], name: str) -> Picture:
    panels, missing, done = [], [], 0
    for dataset in datasets:
        sources = []
        for method in METHODS:
            look = look_of(method)
            runs, told = drawn_from(evidence, find_recipe(f"simclr-{dataset}-{method}"))
            if runs:
                sources.append(Source(f"SimCLR, {look.name}", runs, look.colour, told))
                done += 1
            else:
                missing.append(f"SimCLR, {look.name} on {dataset_name(dataset)}")
        for quantity, shown in PANELS.items():
            title = f"{dataset_name(dataset)}, {shown}"
            panel = curves_panel(f"{name}-{dataset}", title, sources, quantity)
            if panel:
                panels.append(panel)
    return Picture(panels, missing, done, len(datasets) * len(METHODS))
