"""The numbers of ``iam measure``, a function each, and which of them a network can be asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

import torch_iam as iam
from iam_lab.data.catalogue import DataSpec
from iam_lab.errors import RecipeError, RunError, first_line
from iam_lab.measure.progress import Tell, passes, products
from iam_lab.measure.request import Request
from iam_lab.measure.targets import Target
from iam_lab.train.evaluate import errors
from torch_iam.guards import mode
from torch_iam.inputs import logits_of
from torch_iam.spectrum import Eigenvalue, TraceEstimate

Batches = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Found:
    """A number and how far it may be off.

    Attributes:
        name: as it is written in the table.
        value: the number.
        error: how far it may be off; None where that is not known.
        meaning: what kind of error that is.
        converged: whether a search met its tolerance; None where nothing is searched.
        products: with the matrix, that the search took.
    """

    name: str
    value: float
    error: float | None
    meaning: str
    converged: bool | None = None
    products: int | None = None


Measure = Callable[[Target, Batches, Request, Tell], Found]


def _error(target: Target, batches: Batches, request: Request, tell: Tell) -> Found:
    with passes(target.model, "error", len(batches), tell):
        share = errors(target.model, batches)["error"] / 100
    count = sum(len(labels) for _, labels in batches)
    spread = 100 * math.sqrt(share * (1 - share) / count)
    return Found("error %", 100 * share, spread, "standard error over images")


def _s(target: Target, batches: Batches, request: Request, tell: Tell) -> Found:
    name = f"S({request.rho:g})"
    total = len(batches) * (1 + request.restarts * (request.steps + 1))
    with passes(target.model, name, total, tell):
        found = iam.local_inconsistency(
            target.model,
            batches,
            request.rho,
            steps=request.steps,
            restarts=request.restarts,
            divergence=target.divergence,
            seed=request.seed,
        )
    spread = None if math.isnan(found.stderr) else found.stderr
    lost = f", {found.failed} of them failed" if found.failed else ""
    return Found(name, found.value, spread, f"standard error over {found.restarts} starts{lost}")


def _fisher(target: Target, batches: Batches, request: Request, tell: Tell) -> Found:
    search = partial(iam.fisher_lambda_max, target.model, batches, divergence=target.divergence)
    return _eigenvalue("lambda_max(F)", search, request, tell)


def _hessian(target: Target, batches: Batches, request: Request, tell: Tell) -> Found:
    search = partial(iam.hessian_lambda_max, target.model, batches, cross_entropy)
    return _eigenvalue("lambda_max(H)", search, request, tell)


def _fisher_trace(target: Target, batches: Batches, request: Request, tell: Tell) -> Found:
    search = partial(iam.fisher_trace, target.model, batches, divergence=target.divergence)
    return _trace("Tr(F)", search, request, tell)


def _hessian_trace(target: Target, batches: Batches, request: Request, tell: Tell) -> Found:
    search = partial(iam.hessian_trace, target.model, batches, cross_entropy)
    return _trace("Tr(H)", search, request, tell)


MEASURES: dict[str, Measure] = {
    "error": _error,
    "s": _s,
    "fisher": _fisher,
    "fisher-trace": _fisher_trace,
    "hessian": _hessian,
    "hessian-trace": _hessian_trace,
}

LABELLED = ("error", "hessian", "hessian-trace")
"""Those that take the output for the logits of labelled classes."""

USUAL = ("error", "s", "fisher", "hessian")
"""What is measured where nothing is said, as far as there is such a thing."""

MATVECS = 300
"""What a trace may take where nothing is said, as an eigenvalue does."""

PROJECTIONS = "SimCLR's network has projections (the error of its linear probe is in metrics.jsonl)"
"""Why such a network has no labelled measures."""


def cross_entropy(output: object, labels: Tensor) -> Tensor:
    """The loss whose Hessian is measured, whatever form the model's answer has."""
    return F.cross_entropy(logits_of(output), labels)


def chosen(measures: str | None, unlabelled: str | None = None) -> tuple[str, ...]:
    """The measures that a comma-separated list names, or the usual ones.

    Args:
        measures: the list.
        unlabelled: why there are none that need labels, where that is so.

    >>> chosen("s, error"), chosen(None, "it has projections")
    (('s', 'error'), ('s', 'fisher'))
    """
    possible = [name for name in MEASURES if unlabelled is None or name not in LABELLED]
    if measures is None:
        return tuple(name for name in USUAL if name in possible)
    names = tuple(name.strip() for name in measures.split(",") if name.strip())
    if not names or any(name not in MEASURES for name in names):
        raise RecipeError(f"--measures takes any of {', '.join(MEASURES)}; found {measures!r}.")
    refused = [name for name in names if name not in possible]
    if refused:
        raise RecipeError(
            f"--measures {','.join(refused)} needs the logits of classes with labels; {unlabelled}. "
            f"Choose from {', '.join(possible)}."
        )
    return names


def other_classes(target: Target, images: Tensor, spec: DataSpec) -> str | None:
    """Why the labels of the data are not the model's, if they are not; two images are tried."""
    try:
        with torch.no_grad(), mode(target.model, training=False):
            shape = logits_of(target.model(images[:2])).shape
    except Exception as error:  # a model says in its own way that it takes other images
        raise RunError(
            f"{target.described} does not take images {list(images[:2].shape)} of {spec.name}: "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error
    if len(shape) != 2:
        return f"the model answers with {list(shape)} for 2 images, and {spec.name} has a label for each"
    if shape[1] != spec.classes:
        return f"the model has {shape[1]} classes, {spec.name} has {spec.classes}"
    return None


def _eigenvalue(name: str, search: Callable[..., Eigenvalue], request: Request, tell: Tell) -> Found:
    found = search(
        tolerance=request.tolerance,
        max_matvecs=request.max_matvecs,
        seed=request.seed,
        progress=products(name, "residual", request.tolerance, tell),
    )
    meaning = "residual" + _unmet(found.converged, found.matvecs)
    return Found(name, found.value, found.residual, meaning, found.converged, found.matvecs)


def _trace(name: str, search: Callable[..., TraceEstimate], request: Request, tell: Tell) -> Found:
    found = search(
        tolerance=request.trace_tolerance,
        max_matvecs=request.max_matvecs or MATVECS,
        seed=request.seed,
        progress=products(name, "standard error", request.trace_tolerance, tell),
    )
    meaning = "standard error" + _unmet(found.converged, found.matvecs)
    return Found(name, found.value, found.stderr, meaning, found.converged, found.matvecs)


def _unmet(converged: bool, count: int) -> str:
    return "" if converged else f", tolerance not met in {count} products: allow more with --max-matvecs"
