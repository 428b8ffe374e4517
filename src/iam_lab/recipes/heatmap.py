"""fig:heatmap: the grid of beta and rho for IAM-D, chosen on a validation split of a tenth.

The text says that the split chooses; the caption says that the picture shows test error. A run records both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from iam_lab.recipes import tab1
from iam_lab.recipes.family import Family, cell
from iam_lab.recipes.schema import Measurement, Recipe

BETAS = (0.1, 1.0, 5.0, 10.0, 20.0)
RADII = (0.01, 0.05, 0.1, 0.5, 1.0)


def recipe(dataset: str, beta: float, rho: float) -> Recipe:
    """One cell."""
    row = next(row for row in tab1.ROWS if row.dataset == dataset)
    base = tab1.recipe(row, "iam-d")
    return Recipe(
        name=f"heatmap-{dataset}-beta{beta:g}-rho{rho:g}",
        config=replace(
            base.config,
            data=replace(base.config.data, validation=0.1),
            objective=replace(base.config.objective, beta=beta, rho=rho),
            measurement=Measurement(),
        ),
        cells=(
            cell(
                "fig:heatmap",
                dataset,
                "iam-d",
                f"beta={beta:g} rho={rho:g}",
                ours="selected.validation_error",
            ),
        ),
        seeds=1,
        unstated={key: why for key, why in base.unstated.items() if not key.startswith("measurement")},
        note="The number of runs is not stated; one assumed. The caption says test error, the text validation.",
    )


def recipes() -> Iterator[Recipe]:
    """Every cell of both data sets."""
    for dataset in ("cifar10", "cifar100"):
        for beta in BETAS:
            yield from (recipe(dataset, beta, rho) for rho in RADII)


FAMILY = Family("heatmap", "IAM-D over beta and rho, on a validation split", recipes, folded=True)
