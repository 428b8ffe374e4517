"""What ``iam measure`` can be asked for, and what is refused before anything is loaded."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from iam_lab.errors import RecipeError, RunError


@dataclass(frozen=True)
class Request:
    """What is measured.

    Attributes:
        target: a run folder or its last.ckpt, a file of weights (.safetensors, .pt, .pth, .bin, .ckpt; with
            ``--model``), ``timm:NAME``, or a Transformers name or folder.
        data: the data set; by default that of the run.
        split: test or train.
        images: how many of its images, from the beginning; -1 for all.
        measures: any of error, s, fisher, fisher-trace, hessian, hessian-trace, separated by commas; by default
            error,s,fisher,hessian, and s,fisher of a network whose outputs are not the classes of the data.
        rho: radius of S_rho.
        steps: K.
        restarts: starts of S_rho.
        tolerance: relative residual of eigenvalues.
        trace_tolerance: relative standard error of traces.
        max_matvecs: products that an eigenvalue or a trace may take; by default 300.
        batch_size: images in a pass; with what SimCLR has trained, those that are compared with each other.
        model: what the weights of a file belong to, as in a recipe.
        pretrained: weights from the hub for a timm model.
        device: cpu, cuda, cuda:1; by default a GPU where there is one.
        seed: of all random starts and probes.
        out: a JSON file for the numbers, written anew after each of them.
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
    max_matvecs: int | None = None
    batch_size: int = 250
    model: str | None = None
    pretrained: bool = True
    device: str | None = None
    seed: int = 0
    out: Path | None = None


def check(request: Request) -> None:
    """Refuse numbers that no measure can work with.

    >>> check(Request("run", steps=0))
    Traceback (most recent call last):
        ...
    iam_lab.errors.RecipeError: --steps is at least 1, found 0.
    """
    for flag, count, least in (
        ("--steps", request.steps, 1),
        ("--restarts", request.restarts, 1),
        ("--batch-size", request.batch_size, 1),
        ("--max-matvecs", request.max_matvecs, 2),
    ):
        if count is not None and count < least:
            raise RecipeError(f"{flag} is at least {least}, found {count}.")
    for flag, number in (
        ("--rho", request.rho),
        ("--tolerance", request.tolerance),
        ("--trace-tolerance", request.trace_tolerance),
    ):
        if not (math.isfinite(number) and number > 0):
            raise RecipeError(f"{flag} is a finite number above 0, found {number:g}.")
    if request.images < 1 and request.images != -1:
        raise RecipeError(f"--images is at least 1, or -1 for all, found {request.images}.")
    if abs(request.seed) + request.restarts >= 2**63:  # each start has the next seed
        raise RecipeError(f"--seed has at most 63 bits, found {request.seed}.")


def make_room(out: Path) -> None:
    """See to it that ``out`` can be written, before hours are spent on what goes into it."""
    if out.is_dir():
        raise RunError(f"--out {out} is a folder: name a file in it, as in --out {out / 'measures.json'}.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"--out {out}: the folder {out.parent} cannot be made: {error.strerror or error}."
        ) from error
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise RunError(f"--out {out}: nothing can be written into {out.parent}. Choose another folder.")
