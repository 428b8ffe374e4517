"""The paper's numbers: every mean and standard error of its tables and figures, as printed.

They lie in ``paper.csv``, one line a number, keyed by the LaTeX label, so that a recipe, a report and a test
all read the same ones. A cell is what a table varies beside data set and method, written ``"K=2 m=32"``.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType


@dataclass(frozen=True)
class PaperNumber:
    """One number of the paper.

    Attributes:
        label: of the table or figure, as in LaTeX.
        dataset: by its name in the catalogue; ``"cifar"`` where the paper does not say which.
        model: by its name in the registry, as the text (not a contradicting caption) has it.
        method: ``"sgd"``, ``"iam-d"``, ...
        cell: what else identifies it, ``"epochs=400"``; empty where data set and method suffice.
        metric: ``"error"``, ``"top5_error"``, ``"tau"``, ...; errors and accuracies in percent.
        mean: the number.
        printed: the same as the paper prints it, all its digits kept.
        stderr: its standard error; the bound itself where the paper prints ``<0.01``; None where it has none.
        printed_stderr: the same as printed.
        n: the number of runs behind it; None where it is not stated.
        bold: whether the paper sets it in bold face, as the best.
        note: what a reader should know before comparing.
    """

    label: str
    dataset: str
    model: str
    method: str
    cell: str
    metric: str
    mean: float
    printed: str
    stderr: float | None
    printed_stderr: str
    n: int | None
    bold: bool
    note: str

    def __str__(self) -> str:
        """As the paper prints it.

        >>> print(number("tab:1", "fashion_mnist", "asam"))
        4.11 ± <0.01
        """
        return f"{self.printed} ± {self.printed_stderr}" if self.printed_stderr else self.printed


@dataclass(frozen=True)
class Place:
    """A table or figure of the paper.

    Attributes:
        title: what it shows, in a line.
        caveat: what its caption leaves open or gets wrong.
        plotted: a picture whose values are not in the LaTeX source, so that there is nothing to compare with.
    """

    title: str
    caveat: str = ""
    plotted: bool = False


PLACES: Mapping[str, Place] = MappingProxyType(
    {
        "tab:1": Place(
            "Test error of SGD, SAM, ASAM and IAM across data sets",
            "The minimum of the test error over epochs; SGD is the better of 200 and 400 epochs.",
        ),
        "tab:imagnet": Place("ResNet-50 on ImageNet, 200 epochs", "SGD is the better of 200 and 400 epochs."),
        "tab:imagnet_full": Place(
            "ResNet-50 on ImageNet at 100, 200 and 400 epochs",
            "At 400 epochs all but SGD are single runs.",
        ),
        "fig:imagenet_efficiency": Place(
            "Accuracy against cost on ImageNet",
            "The paper counts every method but SGD as twice an SGD epoch; IAM-D takes three.",
        ),
        "tab:vit_cifar10_iamd": Place("ViT-S/16 fine-tuned on CIFAR-10"),
        "tab:cifar_comparison": Place("ViT-T/4 on CIFAR, 200 epochs"),
        "tab:cifar_comparison_mlpmixer": Place("MLP-Mixer-T/4 on CIFAR, 200 epochs"),
        "tab:imagnet_VitS": Place("ViT-S/32 on ImageNet, 300 epochs"),
        "tab:iam_wrn28": Place(
            "IAM-D with K ascent steps on sub-batches of m",
            "The caption says WRN-28-10, but K=1, m=128 repeats tab:1, which is WRN-16-8.",
        ),
        "fig:6": Place("IAM-S: test error over ρ for sub-batches of m", plotted=True),
        "fig:heatmap": Place("IAM-D: test error over β and ρ", plotted=True),
        "fig:incon_sgd_vs_IAM": Place("Local inconsistency and test error along training", plotted=True),
        "fig:CIFAR_m_K_IAM_D": Place("Test error along training, IAM-D with several K and m", plotted=True),
        "fig:measure_comparison": Place("Measures of sharpness against the generalisation gap"),
        "tab:semi_cifar": Place("Few labels, CIFAR", "The model of the upper block is not stated."),
        "tab:fix_match": Place("FixMatch with SAM and IAM-D, 250 labels"),
        "fig:self_supervised_eval": Place(
            "SimCLR on CIFAR-10 by SGD and IAM-D: linear probe and loss along training", plotted=True
        ),
        "fig:self_supervised_total": Place(
            "SimCLR on CIFAR-10 and CIFAR-100 by SGD and IAM-D: linear probe and loss along training",
            plotted=True,
        ),
    }
)
"""Label to what it shows, in the order of the report."""


@cache
def all_numbers() -> tuple[PaperNumber, ...]:
    """Every number, in the order of ``paper.csv``.

    >>> len(all_numbers())
    157
    """
    text = files(__package__).joinpath("paper.csv").read_text(encoding="utf-8")
    return tuple(_parsed(row) for row in csv.DictReader(text.splitlines()))


def numbers(label: str) -> tuple[PaperNumber, ...]:
    """The numbers of one table or figure; empty for a picture.

    >>> len(numbers("tab:1")), len(numbers("fig:heatmap"))
    (20, 0)
    """
    if label not in PLACES:
        raise ValueError(f"The paper has no {label!r}; known are {', '.join(PLACES)}.")
    return tuple(found for found in all_numbers() if found.label == label)


def number(
    label: str, dataset: str, method: str, cell: str = "", metric: str = "error", model: str | None = None
) -> PaperNumber:
    """One number; ``model`` is only needed where a table has several.

    >>> number("tab:1", "cifar10", "iam-d").mean
    3.28
    >>> number("tab:1", "cifar10", "adam")
    Traceback (most recent call last):
        ...
    ValueError: tab:1 has no error of adam on cifar10.
    """
    for found in numbers(label):
        key = (found.dataset, found.method, found.cell, found.metric)
        if key == (dataset, method, cell, metric) and model in (None, found.model):
            return found
    place = f" at {cell}" if cell else ""
    raise ValueError(f"{label} has no {metric} of {method} on {dataset}{place}.")


def _parsed(row: Mapping[str, str]) -> PaperNumber:
    return PaperNumber(
        label=row["label"],
        dataset=row["dataset"],
        model=row["model"],
        method=row["method"],
        cell=row["cell"],
        metric=row["metric"],
        mean=float(row["mean"]),
        printed=row["mean"],
        stderr=float(row["stderr"].removeprefix("<")) if row["stderr"] else None,
        printed_stderr=row["stderr"],
        n=int(row["n"]) if row["n"] else None,
        bold=row["bold"] == "yes",
        note=row["note"],
    )
