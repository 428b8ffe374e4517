"""tab:vit_cifar10_iamd: ViT-S/16, trained on ImageNet-1K, fine-tuned on CIFAR-10."""

from __future__ import annotations

from collections.abc import Iterator

from iam_lab.recipes.family import Family, cell, objective, unstated_for
from iam_lab.recipes.schema import Config, Data, Model, Optimizer, Recipe, Schedule, Training

RHO = {"sam": 0.05, "iam-d": 0.1}
WEIGHTS = "vit_small_patch16_224.augreg_in1k.safetensors"

UNSTATED = {
    "model.weights": "which ImageNet-1K weights is not stated; timm's augreg_in1k, from the hub's repository "
    "timm/vit_small_patch16_224.augreg_in1k",
    "data.image_size": "not stated; 224, what the weights are for",
    "optimizer.options.momentum": "not stated; as in the main experiments",
    "optimizer.weight_decay": "not stated; none, as is usual for fine-tuning",
    "training.label_smoothing": "not stated here; 'used for all methods' in the main experiments",
    "training.precision": "not mentioned; fp32",
    "schedule.final": "not stated; down to zero",
}


def recipe(method: str) -> Recipe:
    """One row."""
    return Recipe(
        name=f"vit-cifar10-iamd-{method}",
        config=Config(
            model=Model("timm:vit_small_patch16_224", weights=WEIGHTS),
            data=Data("cifar10", image_size=224),
            objective=objective(method, rho=RHO.get(method), beta=1.0),
            optimizer=Optimizer(lr=0.01, weight_decay=0.0),
            schedule=Schedule("linear", warmup_steps=500),
            training=Training(steps=10_000, clip_norm=1.0),
        ),
        cells=(cell("tab:vit_cifar10_iamd", "cifar10", method),),
        unstated=UNSTATED | unstated_for(method, beta="not stated; the value of tab:1 for CIFAR-10"),
        note="Needs the given weights: --model.weights FILE. The number of runs is not stated; three assumed.",
    )


def recipes() -> Iterator[Recipe]:
    """Every row."""
    yield from (recipe(method) for method in ("sgd", *RHO))


FAMILY = Family("vit-cifar10-iamd", "ViT-S/16 from ImageNet-1K weights, fine-tuned on CIFAR-10", recipes)
