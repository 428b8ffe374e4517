"""S_rho and eigenvalues on held-out images, along a training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

import torch_iam as iam
from iam_lab.recipes.schema import Measurement
from iam_lab.train.data import RunData
from iam_lab.train.task import Pause
from torch_iam.divergence import Divergence
from torch_iam.guards import mode
from torch_iam.inputs import logits_of


def measure(
    model: nn.Module,
    data: RunData,
    recipe: Measurement,
    seed: int,
    pause: Pause,
    divergence: Divergence | None = None,
) -> dict[str, float | None]:
    """The measurements of a recipe, by their names in the metrics.

    None for what is not finite; where an output is not, nothing but S is told.

    Args:
        model: in evaluation mode while it is measured, and then as it was.
        data: where the images come from.
        recipe: what and how.
        seed: of the starts, the same at every epoch: what changes is the model.
        pause: called before each part.
        divergence: between two outputs; of two classifiers by default.
    """
    held = [
        pair
        for images, labels in data.first(recipe.split, recipe.images)
        for pair in zip(torch.split(images, recipe.batch_size), labels.split(recipe.batch_size), strict=True)  # type: ignore[no-untyped-call]
    ]
    inputs = [images for images, _ in held]
    pause()
    if not _answers(model, inputs):
        return {"s_rho": None}  # the training is about to diverge; it goes on until its patience ends
    estimate = iam.local_inconsistency(
        model,
        inputs,
        recipe.rho,
        steps=recipe.steps,
        restarts=recipe.restarts,
        divergence=divergence,
        seed=seed,
    )
    found: dict[str, float | None] = {
        "s_rho": estimate.value,
        "s_rho_stderr": None if math.isnan(estimate.stderr) else estimate.stderr,
        "s_rho_best": estimate.best,
        "s_rho_images": estimate.inputs,
    }
    if recipe.fisher:
        pause()
        start = estimate.direction if estimate.best > 0 else None
        found["lambda_max_fisher"] = _finite(
            lambda: (
                iam.fisher_lambda_max(
                    model, inputs, divergence=divergence, tolerance=recipe.tolerance, start=start, seed=seed
                ).value
            )
        )
    if recipe.hessian:
        loss = nn.CrossEntropyLoss()
        pause()
        found["lambda_max_hessian"] = _finite(
            lambda: iam.hessian_lambda_max(model, held, loss, tolerance=recipe.tolerance, seed=seed).value
        )
        pause()
        found["trace_hessian"] = _finite(lambda: iam.hessian_trace(model, held, loss, seed=seed).value)
    return found


@torch.no_grad()
def _answers(model: nn.Module, batches: Iterable[Tensor]) -> bool:
    """Whether all outputs are finite: nothing else can be measured."""
    with mode(model, training=False):
        return all(bool(logits_of(model(images)).isfinite().all()) for images in batches)


def _finite(compute: Callable[[], float]) -> float | None:
    """A number; None where the outputs are still finite, and their derivatives are no more."""
    try:
        return compute()
    except FloatingPointError:
        return None
