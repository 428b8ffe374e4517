"""tab:cifar_comparison and tab:cifar_comparison_mlpmixer: ViT-T/4 and MLP-Mixer-T/4 from scratch on CIFAR."""

from __future__ import annotations

from collections.abc import Iterator

from iam_lab.recipes.family import ASAM_PAPER, SAM_PAPER, Family, cell, objective, unstated_for
from iam_lab.recipes.schema import Config, Data, Model, Optimizer, Recipe, Schedule, Training

METHODS = ("adamw", "sam", "asam", "iam-d", "iam-s")
MAIN = "not stated here; 'other settings are the same as main experiments'"

RHO = {
    "cifar10": {"sam": 0.05, "asam": 0.5, "iam-d": 0.1, "iam-s": 0.1},
    "cifar100": {"sam": 0.1, "asam": 1.0, "iam-d": 0.1, "iam-s": 0.5},
}
BETA = {"cifar10": 1.0, "cifar100": 10.0}
WHY = {"sam": SAM_PAPER, "asam": ASAM_PAPER, "iam-d": MAIN, "iam-s": MAIN}

# model: the label it belongs to, and the prefix of its recipes
TABLES = {
    "vit-tiny-4": ("tab:cifar_comparison", "cifar-comparison"),
    "mixer-tiny-4": ("tab:cifar_comparison_mlpmixer", "cifar-comparison-mlpmixer"),
}

UNSTATED = {
    "model.options.drop_path_rate": "not mentioned; 0.1, as in the released code",
    "optimizer.weight_decay": "not stated; 0.3, as in the released code",
    "optimizer.decay_norms_and_biases": "not mentioned; they do not decay, as in the released code",
    "schedule.final": "not stated; down to zero (released code: 1 % of the first rate)",
    "training.precision": "not mentioned; fp32",
}
MIXER_UNSTATED = {
    "optimizer.lr": "no setting of the Mixer is stated; that of ViT-T/4",
    "schedule.name": "no setting of the Mixer is stated; that of ViT-T/4 (released code: multistep)",
    "schedule.warmup_steps": "no setting of the Mixer is stated; that of ViT-T/4",
}


def recipe(model: str, dataset: str, method: str) -> Recipe:
    """One row and column."""
    label, prefix = TABLES[model]
    unstated = UNSTATED | (MIXER_UNSTATED if model == "mixer-tiny-4" else {})
    return Recipe(
        name=f"{prefix}-{dataset}-{method}",
        config=Config(
            model=Model(model, options={"drop_path_rate": 0.1}),
            data=Data(dataset),
            objective=objective(method, rho=RHO[dataset].get(method), beta=BETA[dataset]),
            optimizer=Optimizer(
                "AdamW", lr=0.003, weight_decay=0.3, decay_norms_and_biases=False, options={}
            ),
            schedule=Schedule("linear", warmup_steps=3000),
            training=Training(epochs=200),
        ),
        cells=(cell(label, dataset, method),),
        unstated=unstated | unstated_for(method, rho=WHY.get(method, ""), beta=MAIN),
        note="The number of runs is not stated; three assumed.",
    )


def recipes() -> Iterator[Recipe]:
    """Both tables."""
    for model in TABLES:
        for dataset in RHO:
            yield from (recipe(model, dataset, method) for method in METHODS)


FAMILY = Family("cifar-comparison", "ViT-T/4 and MLP-Mixer-T/4 on CIFAR-10 and CIFAR-100", recipes)
