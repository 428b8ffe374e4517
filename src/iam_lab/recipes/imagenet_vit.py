"""tab:imagnet_VitS: ViT-S/32 on ImageNet."""

from __future__ import annotations

from collections.abc import Iterator

from iam_lab.recipes.family import Family, cell, objective, unstated_for
from iam_lab.recipes.schema import Config, Data, Model, Optimizer, Recipe, Schedule, Training

RHO = {"sam": 0.05, "iam-d": 0.1, "iam-s": 0.2}

UNSTATED = {
    "model.options.drop_path_rate": "not mentioned; 0.1, as in the released code",
    "optimizer.weight_decay": "not stated; 0.3, as in the released code",
    "optimizer.decay_norms_and_biases": "not mentioned; they do not decay, as in the released code",
    "training.batch_size": "not stated; 1024, as for ResNet-50 and in the released code",
    "training.label_smoothing": "not stated here; 'used for all methods' in the main experiments",
    "training.precision": "not mentioned; fp32",
    "schedule.final": "not stated; down to zero (released code: 1 % of the first rate)",
}


def recipe(method: str) -> Recipe:
    """One row."""
    unstated = UNSTATED | unstated_for(method, beta="not stated; 1, the default of the released code")
    if method != "adamw":
        unstated["objective.sub_batch"] = (
            "the number of GPUs is not stated; one delta for each device's share"
        )
    return Recipe(
        name=f"imagnet-vits-{method}",
        config=Config(
            model=Model("timm:vit_small_patch32_224", options={"drop_path_rate": 0.1}),
            data=Data("imagenet", augment="resized-crop-flip"),
            objective=objective(method, rho=RHO.get(method), beta=1.0),
            optimizer=Optimizer(
                "AdamW", lr=0.0075, weight_decay=0.3, decay_norms_and_biases=False, options={}
            ),
            schedule=Schedule("linear", warmup_steps=40_000),
            training=Training(epochs=300, batch_size=1024),
        ),
        cells=(
            cell("tab:imagnet_VitS", "imagenet", method, metric="top1_error"),
            cell("tab:imagnet_VitS", "imagenet", method, metric="top5_error", ours="best.test_top5_error"),
        ),
        unstated=unstated,
        note="The number of runs is not stated; three assumed.",
    )


def recipes() -> Iterator[Recipe]:
    """Every row."""
    yield from (recipe(method) for method in ("adamw", *RHO))


FAMILY = Family("imagnet-vits", "ViT-S/32 on ImageNet, 300 epochs", recipes)
