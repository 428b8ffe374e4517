"""tab:iam_wrn28 and fig:CIFAR_m_K_IAM_D: IAM-D with K ascent steps on sub-batches of m.

The table's caption says WRN-28-10, but its cells K=1, m=128 repeat tab:1, whose network is WRN-16-8, and
section 6 names WRN-16-8 for CIFAR. The cells are therefore run with WRN-16-8; ``-wrn-28-10`` variants follow
the caption. The cell K=1, m=128 is the run of tab:1 itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from iam_lab.recipes import tab1
from iam_lab.recipes.family import Family, cell
from iam_lab.recipes.schema import Measurement, Model, Recipe

STEPS = (1, 2, 3, 5)
SUB_BATCHES = (128, 32, 16)
DRAWN = (128, 32)  # the sub-batches that fig:CIFAR_m_K_IAM_D shows
CAPTION = "the caption says WRN-28-10, but K=1, m=128 repeats tab:1 (WRN-16-8)"


def recipe(dataset: str, steps: int, sub_batch: int, model: str | None = None) -> Recipe:
    """One cell; ``model`` follows the caption."""
    row = next(row for row in tab1.ROWS if row.dataset == dataset)
    base = tab1.recipe(row, "iam-d")
    at = f"K={steps} m={sub_batch}"
    cells = [cell("tab:iam_wrn28", dataset, "iam-d", at)]
    if sub_batch in DRAWN:
        cells.append(cell("fig:CIFAR_m_K_IAM_D", dataset, "iam-d", at))
    whole = base.config.training.batch_size
    return Recipe(
        name=f"iam-wrn28-{dataset}-k{steps}-m{sub_batch}" + (f"-{model}" if model else ""),
        config=replace(
            base.config,
            model=Model(model) if model else base.config.model,
            objective=replace(
                base.config.objective, steps=steps, sub_batch=None if sub_batch == whole else sub_batch
            ),
            measurement=Measurement(),
        ),
        cells=() if model else tuple(cells),
        unstated={key: why for key, why in base.unstated.items() if not key.startswith("measurement")}
        | {"model.name": CAPTION},
        note="With the network of the table's caption." if model else "",
    )


def recipes() -> Iterator[Recipe]:
    """Every cell but the one that tab:1 has; then those of the caption's network."""
    for model in (None, "wrn-28-10"):
        for dataset in ("cifar10", "cifar100"):
            for steps in STEPS:
                for sub_batch in SUB_BATCHES:
                    if model or (steps, sub_batch) != (1, 128):
                        yield recipe(dataset, steps, sub_batch, model)


FAMILY = Family("iam-wrn28", "IAM-D with K ascent steps on sub-batches of m", recipes, folded=True)
