"""Any optimizer of torch, by name."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn

from iam_lab.errors import RecipeError
from iam_lab.recipes.schema import Optimizer, Training
from iam_lab.train.numerics import field


def build_optimizer(model: nn.Module, recipe: Optimizer, training: Training) -> torch.optim.Optimizer:
    """The optimizer of a recipe over all trainable weights.

    On a GPU it is the fused one where there is one: that can leave out a step without the CPU's knowing.

    >>> build_optimizer(nn.Linear(2, 2), Optimizer(), Training()).param_groups[0]["momentum"]
    0.9
    >>> build_optimizer(nn.Linear(2, 2), Optimizer("sgd"), Training())
    Traceback (most recent call last):
        ...
    iam_lab.errors.RecipeError: optimizer.name: torch.optim has no 'sgd'. Did you mean 'SGD'?
    """
    found = _class(recipe.name)
    known = inspect.signature(found).parameters
    device = next(model.parameters()).device
    options: dict[str, Any] = dict(recipe.options)
    for name in options:
        if name not in known:
            taken = ", ".join(name for name in known if name not in ("params", "lr", "weight_decay"))
            raise RecipeError(f"optimizer.options: {recipe.name} has no {name!r}; it has {taken}.")
    if "weight_decay" in known:
        options["weight_decay"] = recipe.weight_decay
    elif recipe.weight_decay:
        raise RecipeError(f"optimizer.weight_decay: {recipe.name} has none, set it to 0.")
    if device.type == "cuda" and "fused" in known and training.precision != "fp16":
        options.setdefault("fused", True)
    lr = (
        torch.tensor(recipe.lr, device=device) if training.cuda_graph and device.type == "cuda" else recipe.lr
    )
    with field("optimizer", recipe.options):
        optimizer: torch.optim.Optimizer = found(_groups(model, recipe), lr=lr, **options)
    return optimizer


def _groups(model: nn.Module, recipe: Optimizer) -> Iterable[Any]:
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if recipe.decay_norms_and_biases:
        return weights
    matrices = [weight for weight in weights if weight.ndim >= 2]
    others = [weight for weight in weights if weight.ndim < 2]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _class(name: str) -> Any:
    base = torch.optim.Optimizer
    kinds = {
        key: kind
        for key, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base
    }
    if name not in kinds:
        near = next((key for key in kinds if key.lower() == name.lower()), None)
        near = near or next(iter(get_close_matches(name, kinds, n=1)), None)
        hint = f" Did you mean {near!r}?" if near else f" It has {', '.join(kinds)}."
        raise RecipeError(f"optimizer.name: torch.optim has no {name!r}.{hint}")
    if name in ("LBFGS", "SparseAdam"):
        raise RecipeError(f"optimizer.name: {name} needs a closure or sparse gradients, which there are not.")
    return kinds[name]
