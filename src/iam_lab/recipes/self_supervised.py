"""fig:self_supervised_eval and fig:self_supervised_total: SimCLR by SGD and by IAM-D, judged by a linear probe."""

from __future__ import annotations

from collections.abc import Iterator

from iam_lab.data.catalogue import spec_of
from iam_lab.recipes.family import Family, cell, objective
from iam_lab.recipes.few_labels import Probe, SimCLR
from iam_lab.recipes.schema import (
    Cell,
    Config,
    Data,
    Evaluation,
    Model,
    Optimizer,
    Recipe,
    Schedule,
    Training,
)

METHODS = ("sgd", "iam-d")
DATASETS = ("cifar10", "cifar100")
BATCH, WARMUP_EPOCHS = 1024, 10

UNSTATED = {
    "optimizer.options.nesterov": "not mentioned; off",
    "optimizer.decay_norms_and_biases": "not mentioned; all weights decay, as in the main experiments",
    "training.precision": "not mentioned; fp32",
    "probe.lr": "not stated; the default of AdamW",
    "probe.weight_decay": "not stated; the default of AdamW",
}
OF_IAM_D = {
    "objective.steps": "implied",
    "simclr.axis": "S is said to be 'computed between projection head outputs'; the rows of their similarities, "
    "which the released loss compares",
}


def recipe(dataset: str, method: str) -> Recipe:
    """One curve."""
    steps_per_epoch = spec_of(dataset).sizes["train"] // BATCH
    return Recipe(
        name=f"simclr-{dataset}-{method}",
        config=Config(
            model=Model("resnet18-cifar"),
            data=Data(dataset, augment="simclr"),
            objective=objective(method, rho=0.1, beta=1.0, options={"start_norm": 3.0}),
            optimizer=Optimizer(lr=1.0, weight_decay=1e-4),
            schedule=Schedule("cosine", warmup_steps=WARMUP_EPOCHS * steps_per_epoch),
            training=Training(epochs=200, batch_size=BATCH, label_smoothing=0.0),
            evaluation=Evaluation(every=5),
            simclr=SimCLR(temperature=0.5, projector=(512, 128)),
            probe=Probe(epochs=20, batch_size=1024),
            task="simclr",
        ),
        cells=tuple(_cells(dataset, method)),
        unstated=UNSTATED | (OF_IAM_D if method == "iam-d" else {}),
        note="The probe's augmentation is not stated; none. 'Noise scale 3.0' is read as the norm of the start.",
    )


def recipes() -> Iterator[Recipe]:
    """Every curve of both figures."""
    for dataset in DATASETS:
        yield from (recipe(dataset, method) for method in METHODS)


def _cells(dataset: str, method: str) -> Iterator[Cell]:
    if dataset == "cifar10":
        yield cell("fig:self_supervised_eval", dataset, method)
    yield cell("fig:self_supervised_total", dataset, method)


FAMILY = Family("simclr", "SimCLR on CIFAR by SGD and by IAM-D, judged by a linear probe", recipes)
