"""fig:6: IAM-S on CIFAR-10 over rho, for several sizes m of the sub-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from iam_lab.recipes import tab1
from iam_lab.recipes.family import Family, cell
from iam_lab.recipes.schema import Recipe

SUB_BATCHES = (4, 16, 64, 256)
RADII = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
BATCH = 256


def recipe(sub_batch: int, rho: float) -> Recipe:
    """One point of the figure."""
    base = tab1.recipe(tab1.ROWS[0], "iam-s")
    return Recipe(
        name=f"fig6-m{sub_batch}-rho{rho:g}",
        config=replace(
            base.config,
            objective=replace(
                base.config.objective, rho=rho, sub_batch=None if sub_batch == BATCH else sub_batch
            ),
            training=replace(base.config.training, batch_size=BATCH),
        ),
        cells=(cell("fig:6", "cifar10", "iam-s", f"m={sub_batch} rho={rho:g}"),),
        unstated=dict(base.unstated)
        | {"optimizer.lr": "not stated for a batch of 256; 'all other training details are identical'"},
    )


def recipes() -> Iterator[Recipe]:
    """Every point."""
    for sub_batch in SUB_BATCHES:
        yield from (recipe(sub_batch, rho) for rho in RADII)


FAMILY = Family("fig6", "IAM-S over rho for sub-batches of 4 to 256", recipes, folded=True)
