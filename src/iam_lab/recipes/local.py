"""Recipes for trying the laboratory out on a CPU; they reproduce nothing of the paper."""

from __future__ import annotations

from collections.abc import Iterator

from iam_lab.recipes.family import METHODS, Family, objective
from iam_lab.recipes.schema import (
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

RHO = {"sam": 0.05, "asam": 0.5, "iam-d": 0.1, "iam-s": 0.1}


def digits(method: str) -> Recipe:
    """1,437 images of 8 x 8: seconds on one core, with S_rho along the training."""
    return Recipe(
        name=f"digits-{method}",
        config=Config(
            model=Model("mlp"),
            data=Data("digits", augment="none", validation=0.1),
            objective=objective(method, rho=RHO.get(method), beta=1.0),
            optimizer=Optimizer(lr=0.1, weight_decay=5e-4),
            schedule=Schedule("cosine"),
            training=Training(epochs=20, batch_size=64, label_smoothing=0.0),
            evaluation=Evaluation(train_images=-1),
            measurement=Measurement(every=5, images=360, rho=0.1, steps=3, restarts=2),
        ),
        note="For trying the trainer: seconds on a CPU.",
    )


def small(dataset: str, method: str) -> Recipe:
    """5,000 images and the small network: minutes on a CPU."""
    return Recipe(
        name=f"small-{dataset.replace('_', '-')}-{method}",
        config=Config(
            model=Model("6cnn"),
            data=Data(dataset, validation=0.1, train_images=5000),
            objective=objective(method, rho=RHO.get(method), beta=1.0),
            optimizer=Optimizer(lr=0.02, weight_decay=5e-4),
            schedule=Schedule("cosine"),
            training=Training(epochs=10, batch_size=64, label_smoothing=0.0),
            measurement=Measurement(every=5, images=1000, rho=0.1, steps=3, restarts=1),
        ),
        note="For trying the trainer: a few minutes on a CPU.",
    )


def digits_recipes() -> Iterator[Recipe]:
    """Every objective on scikit-learn's digits."""
    yield from (digits(method) for method in METHODS)


def small_recipes() -> Iterator[Recipe]:
    """Every objective on a part of Fashion-MNIST and of CIFAR-10."""
    for dataset in ("fashion_mnist", "cifar10"):
        yield from (small(dataset, method) for method in METHODS)


DIGITS = Family(
    "digits", "scikit-learn's digits with a small network, for trying the trainer", digits_recipes
)
SMALL = Family("small", "5,000 images of Fashion-MNIST or CIFAR-10 and the 6CNN, on a CPU", small_recipes)
