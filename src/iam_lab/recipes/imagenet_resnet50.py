"""tab:imagnet, tab:imagnet_full and fig:imagenet_efficiency: ResNet-50 on ImageNet at several lengths."""

from __future__ import annotations

from collections.abc import Iterator

from iam_lab.recipes.family import Family, cell, objective, unstated_for
from iam_lab.recipes.schema import Cell, Config, Data, Model, Optimizer, Recipe, Schedule, Training

RHO = {"sam": 0.05, "iam-d": 0.1, "iam-s": 0.2}
METHODS = ("sgd", *RHO)
SETTING = "not stated; 'the experimental setting of' Foret et al."

# epochs: methods that the paper ran so long
RUNS = {100: METHODS, 200: METHODS, 400: METHODS, 800: ("sgd",)}

UNSTATED = {
    "optimizer.weight_decay": SETTING,
    "optimizer.options.momentum": SETTING,
    "optimizer.options.nesterov": "not mentioned; off, as in the released code",
    "schedule.name": f"{SETTING}: cosine",
    "schedule.warmup_steps": "not mentioned; none, as in the released code",
    "training.precision": "not mentioned; fp32",
}


def config(method: str, epochs: int) -> Config:
    """The setting of all rows."""
    return Config(
        model=Model("timm:resnet50"),
        data=Data("imagenet", augment="resized-crop-flip"),
        objective=objective(method, rho=RHO.get(method), beta=1.0),
        optimizer=Optimizer(lr=0.2, weight_decay=1e-4),
        schedule=Schedule("cosine"),
        training=Training(epochs=epochs, batch_size=1024),
    )


def recipe(method: str, epochs: int) -> Recipe:
    """One row at one length."""
    why = "not stated; 1, the default of the released code"
    unstated = UNSTATED | unstated_for(method, beta=why)
    if method != "sgd":
        unstated["objective.sub_batch"] = (
            "the number of GPUs, each with a delta of its own, is not stated (released README: 4); "
            "one delta for each device's share of the batch"
        )
    single = epochs == 800 or (epochs == 400 and method != "sgd")
    prefix = "imagnet" if epochs == 200 else "imagnet-full"
    return Recipe(
        name=f"{prefix}-{method}" if epochs == 200 else f"{prefix}-{method}-{epochs}",
        config=config(method, epochs),
        cells=tuple(_cells(method, epochs)),
        seeds=1 if single else 3,
        unstated=unstated,
        note="A single run in the paper." if single else "The number of runs is not stated; three assumed.",
    )


def _cells(method: str, epochs: int) -> Iterator[Cell]:
    at = f"epochs={epochs}"
    for metric, ours in (("top1_error", "best.test_error"), ("top5_error", "best.test_top5_error")):
        if epochs != 800:
            yield cell("tab:imagnet_full", "imagenet", method, at, metric=metric, ours=ours)
        if epochs == 200 or (epochs == 400 and method == "sgd"):
            yield cell("tab:imagnet", "imagenet", method, metric=metric, ours=ours)
    yield cell("fig:imagenet_efficiency", "imagenet", method, at, metric="top1_accuracy")


def recipes() -> Iterator[Recipe]:
    """Every row at every length."""
    for epochs, methods in RUNS.items():
        yield from (recipe(method, epochs) for method in methods)


FAMILY = Family("imagnet", "ResNet-50 on ImageNet at 100, 200, 400 and (SGD) 800 epochs", recipes)
