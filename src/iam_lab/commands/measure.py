"""``iam measure``: S_rho, the Fisher's and the Hessian's spectrum of a checkpoint, with errors and times."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch import Tensor
from torch.nn import functional as F

import torch_iam as iam
from iam_lab.commands.parsing import parsed
from iam_lab.commands.targets import Target, device_of, find_target, run_config
from iam_lab.data import load, spec_of
from iam_lab.data.augment.normalize import Normalize
from iam_lab.data.catalogue import DataSpec
from iam_lab.errors import RecipeError
from iam_lab.recipes.few_labels import TaskName
from iam_lab.runs.environment import environment
from iam_lab.runs.files import write_json
from iam_lab.train.evaluate import errors
from torch_iam.inputs import logits_of

Batches = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Request:
    """What is measured.

    Attributes:
        target: a run folder, a file of weights (with ``--model``), ``timm:NAME``, or a Transformers name.
        data: the data set; by default that of the run.
        split: test or train.
        images: how many of its images, from the beginning; -1 for all.
        measures: any of error, s, fisher, fisher-trace, hessian, hessian-trace, separated by commas; by default
            error,s,fisher,hessian, and s,fisher of what SimCLR has trained.
        rho: radius of S_rho.
        steps: K.
        restarts: starts of S_rho.
        tolerance: relative residual of eigenvalues.
        trace_tolerance: relative standard error of traces.
        batch_size: images in a pass; with what SimCLR has trained, those that are compared with each other.
        model: what the weights of a file belong to, as in a recipe.
        pretrained: weights from the hub for a timm model.
        device: cpu, cuda, cuda:1; by default a GPU where there is one.
        seed: of all random starts and probes.
        out: a JSON file to write the numbers into.
    """

    target: Annotated[str, tyro.conf.Positional]
    data: str | None = None
    split: str = "test"
    images: int = 1000
    measures: str | None = None
    rho: float = 0.1
    steps: int = 3
    restarts: int = 10
    tolerance: float = 1e-3
    trace_tolerance: float = 0.02
    batch_size: int = 250
    model: str | None = None
    pretrained: bool = True
    device: str | None = None
    seed: int = 0
    out: Path | None = None


@dataclass(frozen=True)
class Row:
    """A number, how far it may be off, and what it took."""

    name: str
    value: float
    error: float | None
    meaning: str
    seconds: float


Measure = Callable[[Target, Batches, Request], tuple[str, float, float | None, str]]


def _error(target: Target, batches: Batches, request: Request) -> tuple[str, float, float | None, str]:
    share = errors(target.model, batches)["error"] / 100
    count = sum(len(labels) for _, labels in batches)
    return "error %", 100 * share, 100 * math.sqrt(share * (1 - share) / count), "standard error over images"


def _s(target: Target, batches: Batches, request: Request) -> tuple[str, float, float | None, str]:
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
    return f"S({request.rho:g})", found.value, spread, f"standard error over {found.restarts} starts"


def _fisher(target: Target, batches: Batches, request: Request) -> tuple[str, float, float | None, str]:
    found = iam.fisher_lambda_max(
        target.model,
        batches,
        tolerance=request.tolerance,
        seed=request.seed,
        divergence=target.divergence,
    )
    return "lambda_max(F)", found.value, found.residual, "residual" + _short(found.converged)


def _hessian(target: Target, batches: Batches, request: Request) -> tuple[str, float, float | None, str]:
    found = iam.hessian_lambda_max(
        target.model, batches, cross_entropy, tolerance=request.tolerance, seed=request.seed
    )
    return "lambda_max(H)", found.value, found.residual, "residual" + _short(found.converged)


def _fisher_trace(target: Target, batches: Batches, request: Request) -> tuple[str, float, float | None, str]:
    found = iam.fisher_trace(
        target.model,
        batches,
        tolerance=request.trace_tolerance,
        seed=request.seed,
        divergence=target.divergence,
    )
    return "Tr(F)", found.value, found.stderr, "standard error" + _short(found.converged)


def _hessian_trace(
    target: Target, batches: Batches, request: Request
) -> tuple[str, float, float | None, str]:
    found = iam.hessian_trace(
        target.model, batches, cross_entropy, tolerance=request.trace_tolerance, seed=request.seed
    )
    return "Tr(H)", found.value, found.stderr, "standard error" + _short(found.converged)


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


def cross_entropy(output: object, labels: Tensor) -> Tensor:
    """The loss whose Hessian is measured, whatever form the model's answer has."""
    return F.cross_entropy(logits_of(output), labels)


def batches_for(target: Target, spec: DataSpec, request: Request, device: torch.device) -> Batches:
    """Normalised images, at the size that the model expects, and their labels."""
    if request.batch_size < 1 or request.images == 0:
        raise RecipeError(
            "--batch-size is at least 1, and --images too, or -1 for all; "
            f"found {request.batch_size} and {request.images}."
        )
    found = load(spec.name, request.split)
    count = len(found) if request.images < 0 else min(request.images, len(found))
    normalize = Normalize(target.mean or spec.mean, target.std or spec.std)
    batches = []
    for start in range(0, count, request.batch_size):
        rows = slice(start, min(start + request.batch_size, count))
        raw = found.images[rows].to(device)
        if target.mean is not None and raw.shape[1] == 1 and len(target.mean) > 1:
            raw = raw.expand(-1, len(target.mean), -1, -1)
        images = normalize(raw)
        if target.image_size not in (None, images.shape[-1]):
            size = (int(target.image_size or 0),) * 2
            images = F.interpolate(images, size=size, mode="bicubic", antialias=True)
        batches.append((images, found.labels[rows].to(device)))
    compares_rows = isinstance(target.divergence, iam.SimilarityKL) and target.divergence.axis == "similarity"
    if compares_rows and len(batches[-1][0]) == 1:
        raise RecipeError(
            f"--batch-size {request.batch_size} leaves one of {count} images to a pass of its own, and SimCLR's "
            "network is measured by how the images of a pass are like each other. Choose another size."
        )
    return batches


def chosen(measures: str | None, task: TaskName = "supervised") -> tuple[str, ...]:
    """The measures that a comma-separated list names, or the usual ones, of what a task has trained.

    >>> chosen("s, error"), chosen(None, "simclr")
    (('s', 'error'), ('s', 'fisher'))
    """
    possible = [name for name in MEASURES if task != "simclr" or name not in LABELLED]
    if measures is None:
        return tuple(name for name in USUAL if name in possible)
    names = tuple(name.strip() for name in measures.split(",") if name.strip())
    if not names or any(name not in MEASURES for name in names):
        raise RecipeError(f"--measures takes any of {', '.join(MEASURES)}; found {measures!r}.")
    for name in names:
        if name not in possible:
            raise RecipeError(
                f"--measures {name} needs the logits of classes with labels; SimCLR's network has projections. "
                f"Choose from {', '.join(possible)}; the error of its linear probe is in metrics.jsonl."
            )
    return names


def measure(request: Request) -> int:
    """Measure, print a table, write the numbers."""
    config = run_config(request.target)
    wanted = chosen(request.measures, "supervised" if config is None else config.task)
    request = replace(request, measures=",".join(wanted))
    name = request.data or (None if config is None else config.data.name)
    if name is None:
        raise RecipeError(
            "Say on which images with --data, as in --data cifar10; 'iam data list' names them."
        )
    spec = spec_of(name)
    target = find_target(
        request.target, spec, model=request.model, config=config, pretrained=request.pretrained
    )
    device = device_of(request.device)
    batches = batches_for(target, spec, request, device)
    target.model.to(device)
    count = sum(len(labels) for _, labels in batches)
    sys.stdout.write(f"{target.described}, {count} images of {name}/{request.split}\n\n")
    rows = []
    for measured in wanted:
        begin = time.perf_counter()
        label, value, error, meaning = MEASURES[measured](target, batches, request)
        row = Row(label, value, error, meaning, time.perf_counter() - begin)
        rows.append(row)
        spread = "" if row.error is None else f"± {row.error:.2g}"
        sys.stdout.write(
            f"{row.name:<14} {row.value:>10.4g} {spread:<10} {row.seconds:7.1f} s   {row.meaning}\n"
        )
        sys.stdout.flush()
    if request.out is not None:
        content = {
            "request": {
                key: str(value) if isinstance(value, Path) else value
                for key, value in asdict(request).items()
            },
            "images": count,
            "rows": [asdict(row) for row in rows],
            "environment": environment(str(device)),
        }
        write_json(request.out, content)
        sys.stdout.write(f"\nwritten: {request.out}\n")
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    return measure(parsed(Request, "measure", arguments))


def _short(converged: bool) -> str:
    return "" if converged else ", tolerance not met"
