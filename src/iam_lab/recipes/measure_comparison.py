"""fig:measure_comparison: does S_rho, Tr(H) or lambda_max(H) rank networks as their generalisation gap does?

Every recipe is a point of the scatter plots; tau is over all of them. The grids are those of tab:hp-fig1.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from iam_lab.recipes.family import Family, cell
from iam_lab.recipes.schema import (
    Cell,
    Config,
    Data,
    Evaluation,
    Measurement,
    Model,
    Optimizer,
    Recipe,
    Schedule,
    Training,
)

BATCH_SIZES = (32, 64, 128, 256, 512)
CNN_RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
CNN_DECAYS = (0.0, 1e-4, 5e-4, 1e-3)
WRN_RATES = (0.1, 0.03, 0.01)
WRN_DECAYS = (0.0, 1e-4, 5e-4)
WRN_SCHEDULES = ("cosine", "multistep")
WRN_EPOCHS = (150, 200, 300)

# measure: where the summary of a run has it
MEASURES = {
    "measure=S_rho": "last.s_rho",
    "measure=trace_H": "last.trace_hessian",
    "measure=lambda_max_H": "last.lambda_max_hessian",
}

UNSTATED = {
    "optimizer.options.momentum": "not stated; as in the main experiments",
    "optimizer.options.nesterov": "not mentioned; off",
    "training.precision": "not mentioned; fp32",
    "measurement.rho": "not stated; the training radius of CIFAR-10",
}


def six_cnn(lr: float, batch_size: int, weight_decay: float) -> Recipe:
    """A point of the upper row."""
    return Recipe(
        name=f"measure-comparison-6cnn-lr{lr:g}-bs{batch_size}-wd{weight_decay:g}",
        config=Config(
            model=Model("6cnn"),
            data=Data("cifar10", augment="none", validation=0.1),
            optimizer=Optimizer(lr=lr, weight_decay=weight_decay),
            schedule=Schedule("constant"),
            training=Training(epochs=400, batch_size=batch_size, label_smoothing=0.0),
            evaluation=Evaluation(every=10, train_images=-1),
            measurement=_measured(epochs=400, steps=3, restarts=3),
        ),
        cells=_cells("6cnn"),
        seeds=5,
        unstated=UNSTATED
        | {
            "training.epochs": "'until convergence (<400)' without a criterion; 400",
            "measurement.restarts": "not stated for K=3; 3",
        },
    )


def wide_resnet(
    lr: float, batch_size: int, weight_decay: float, schedule: str, augment: bool, epochs: int
) -> Recipe:
    """A point of the lower row."""
    crops = "aug" if augment else "plain"
    return Recipe(
        name=f"measure-comparison-wrn28-2-lr{lr:g}-bs{batch_size}-wd{weight_decay:g}-{schedule}-{crops}-{epochs}",
        config=Config(
            model=Model("wrn-28-2"),
            data=Data("cifar10", augment="crop-flip" if augment else "none", validation=0.1),
            optimizer=Optimizer(lr=lr, weight_decay=weight_decay),
            schedule=Schedule(schedule),
            training=Training(epochs=epochs, batch_size=batch_size, label_smoothing=0.0),
            evaluation=Evaluation(every=10, train_images=-1),
            measurement=_measured(epochs=epochs, steps=1, restarts=10),
        ),
        cells=_cells("wrn-28-2"),
        seeds=1,
        unstated=UNSTATED | {"schedule.milestones": "not stated; 30, 60 and 80 % as in the main experiments"},
        note="The number of runs is not stated; one assumed.",
    )


def _measured(epochs: int, steps: int, restarts: int) -> Measurement:
    """Once, at the end, on the 5,000 images that training leaves out."""
    return Measurement(
        every=epochs, split="validation", rho=0.1, steps=steps, restarts=restarts, hessian=True
    )


def _cells(model: str) -> tuple[Cell, ...]:
    label = "fig:measure_comparison"
    return tuple(
        cell(label, "cifar10", "sgd", measure, metric="tau", ours=ours, model=model)
        for measure, ours in MEASURES.items()
    )


def recipes() -> Iterator[Recipe]:
    """600 runs of the small network (120 settings, 5 seeds) and 540 of the wide one."""
    yield from (six_cnn(*setting) for setting in product(CNN_RATES, BATCH_SIZES, CNN_DECAYS))
    grid = product(WRN_RATES, BATCH_SIZES, WRN_DECAYS, WRN_SCHEDULES, (True, False), WRN_EPOCHS)
    yield from (wide_resnet(*setting) for setting in grid)


FAMILY = Family(
    "measure-comparison", "Measures against the generalisation gap, 6CNN and WRN-28-2", recipes, folded=True
)
