"""The objective of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

import torch_iam as iam
from iam_lab.recipes.schema import Config, Objective
from iam_lab.train.numerics import field
from torch_iam.divergence import Divergence

CLASSES: Mapping[str, Any] = MappingProxyType(
    {"plain": iam.Plain, "sam": iam.SAM, "asam": iam.ASAM, "iam-d": iam.IAMD, "iam-s": iam.IAMS}
)


def build_objective(
    model: nn.Module, recipe: Objective, seed: int, divergence: Divergence | None = None
) -> iam.Objective:
    """What a recipe descends along.

    Args:
        model: as it is called in training, in ``torch.compile`` or not.
        recipe: the fields of a config.
        seed: of the random starts.
        divergence: between two outputs, for objectives that compare them; of two classifiers by default.

    >>> build_objective(nn.Linear(2, 2), Objective("iam-d", rho=0.1, beta=2.0), seed=0).beta
    2.0
    """
    arguments = {name: getattr(recipe, name) for name in ("rho", "beta", "steps", "eta", "sub_batch")}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    if recipe.name in ("iam-d", "iam-s"):
        arguments |= {"seed": seed, "divergence": divergence}
    if recipe.name != "plain" and not recipe.norms_and_biases:
        arguments["params"] = iam.no_norms_and_biases
    with field("objective", recipe.options):
        objective: iam.Objective = CLASSES[recipe.name](model, **arguments, **recipe.options)
    return objective


def divergence_of(config: Config) -> Divergence | None:
    """How far apart two outputs of a task's network are; None for those of classifiers.

    >>> divergence_of(Config(task="simclr"))
    SimilarityKL(temperature=0.5, axis='similarity')
    """
    if config.task != "simclr":
        return None
    with field("simclr"):
        return iam.SimilarityKL(config.simclr.temperature, config.simclr.axis)
