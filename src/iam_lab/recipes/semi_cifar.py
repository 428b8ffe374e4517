"""tab:semi_cifar, upper block: SGD, SAM and IAM-D on CIFAR with few labels.

Cross-entropy on 128 labelled images; IAM-D's inconsistency on these and on 384 without labels.
"""

from __future__ import annotations

from collections.abc import Iterator

from iam_lab.recipes.family import SGD_UNSTATED, Family, cell, objective, unstated_for
from iam_lab.recipes.few_labels import SemiSupervised
from iam_lab.recipes.schema import Config, Data, Model, Optimizer, Recipe, Schedule, Training

LABELS = {"cifar10": (250, 4000), "cifar100": (2500, 10_000)}
BETA = {"cifar10": 1.0, "cifar100": 10.0}
METHODS = ("sgd", "sam", "iam-d")

UNSTATED = dict(SGD_UNSTATED) | {
    "model.name": "not stated; WRN-16-8, as in the main experiments on CIFAR",
    "optimizer.lr": "not stated; as in the main experiments",
    "training.label_smoothing": "not stated here; 'used for all methods' in the main experiments",
    "training.steps_per_epoch": "which images make an epoch is not stated; those without labels, for all methods",
    "semi.include_labelled": "not stated; the images without labels are the others",
    "data.augment": "not stated; as in the main experiments",
}


def recipe(dataset: str, labels: int, method: str) -> Recipe:
    """One row and column."""
    return Recipe(
        name=f"semi-{dataset}-{labels}-{method}",
        config=Config(
            model=Model("wrn-16-8"),
            data=Data(dataset),
            objective=objective(method, rho=0.1, beta=BETA[dataset]),
            optimizer=Optimizer(lr=0.1),
            schedule=Schedule("constant"),
            training=Training(epochs=200, batch_size=128),
            semi=SemiSupervised(labels, batch_size=384),
            task="semi-supervised",
        ),
        cells=(cell("tab:semi_cifar", dataset, method, f"labels={labels}"),),
        unstated=UNSTATED | unstated_for(method, start="released: the loss alone, no script that sets one"),
        note="" if method == "iam-d" else "Trains on the labelled images alone, for as many steps as IAM-D.",
    )


def recipes() -> Iterator[Recipe]:
    """Every cell of the block."""
    for dataset, counts in LABELS.items():
        for labels in counts:
            yield from (recipe(dataset, labels, method) for method in METHODS)


FAMILY = Family("semi", "CIFAR with few labels: SGD, SAM and IAM-D, which sees the other images too", recipes)
