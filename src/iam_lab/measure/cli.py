"""``iam measure``: S_rho, the Fisher's and the Hessian's spectrum of a checkpoint, with errors and times."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

import torch_iam as iam
from iam_lab.commands.parsing import parsed
from iam_lab.data import load, spec_of
from iam_lab.data.catalogue import DataSpec
from iam_lab.errors import RecipeError, RunError, first_line
from iam_lab.measure.progress import Ticker
from iam_lab.measure.quantities import MEASURES, PROJECTIONS, USUAL, Batches, Found, chosen, other_classes
from iam_lab.measure.request import Request, check, make_room
from iam_lab.measure.targets import Target, find_target, run_config
from iam_lab.runs.environment import environment
from iam_lab.runs.files import write_json
from iam_lab.train.numerics import device_of


def batches_for(target: Target, spec: DataSpec, request: Request, device: torch.device) -> Batches:
    """Images as the model takes them, and their labels."""
    found = load(spec.name, request.split)
    count = len(found) if request.images < 0 else min(request.images, len(found))
    batches = []
    for start in range(0, count, request.batch_size):
        rows = slice(start, min(start + request.batch_size, count))
        images = target.preparation(found.images[rows], spec)
        batches.append((images.to(device), found.labels[rows].to(device)))
    compares_rows = isinstance(target.divergence, iam.SimilarityKL) and target.divergence.axis == "similarity"
    if compares_rows and len(batches[-1][0]) == 1:
        raise RecipeError(
            f"--batch-size {request.batch_size} leaves one of {count} images to a pass of its own, and SimCLR's "
            "network is measured by how the images of a pass are like each other. Choose another size."
        )
    return batches


def measure(request: Request) -> int:
    """Measure, print a table, write the numbers."""
    check(request)
    device = device_of(request.device or "auto")
    own_file = request.model is not None and Path(request.target).is_file()
    config = None if own_file else run_config(request.target)
    unlabelled = PROJECTIONS if config is not None and config.task == "simclr" else None
    chosen(request.measures, unlabelled)  # told before anything is loaded
    name = request.data or (None if config is None else config.data.name)
    if name is None:
        raise RecipeError(
            "Say on which images with --data, as in --data cifar10; 'iam data list' names them."
        )
    spec = spec_of(name)
    if request.out is not None:
        make_room(request.out)
    target = find_target(
        request.target, spec, model=request.model, config=config, pretrained=request.pretrained
    )
    batches = batches_for(target, spec, request, device)
    target.model.to(device)
    unlabelled = unlabelled or other_classes(target, batches[0][0], spec)
    wanted = chosen(request.measures, unlabelled)
    missing = [] if request.measures else [usual for usual in USUAL if usual not in wanted]
    note = f"without {', '.join(missing)}: {unlabelled}" if missing else None
    _measure_all(replace(request, data=name, measures=",".join(wanted)), target, batches, note)
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    return measure(parsed(Request, "measure", arguments))


def _measure_all(request: Request, target: Target, batches: Batches, note: str | None) -> None:
    """A line and a row for each measure, as soon as it is there."""
    wanted = str(request.measures).split(",")
    content = _header(request, target, batches) | {"note": note, "complete": False, "rows": []}
    head = f"{target.described}, {content['images']} images of {request.data}/{request.split}"
    sys.stdout.write("\n".join([head, *([note] if note else []), "", ""]))
    sys.stdout.flush()
    for name in wanted:
        begin = time.perf_counter()
        found = _one(name, target, batches, request)
        seconds = time.perf_counter() - begin
        content["rows"].append({**asdict(found), "seconds": seconds})
        content["complete"] = len(content["rows"]) == len(wanted)
        sys.stdout.write(_line(found, seconds))
        sys.stdout.flush()
        if request.out is not None:
            write_json(request.out, content)
    if request.out is not None:
        sys.stdout.write(f"\nwritten: {request.out}\n")


def _one(name: str, target: Target, batches: Batches, request: Request) -> Found:
    ticker = Ticker()
    try:
        return MEASURES[name](target, batches, request, ticker.tell)
    except torch.OutOfMemoryError as error:
        raise RunError(
            f"{name}: the memory of the device is full with {request.batch_size} images in a pass; try a "
            f"smaller --batch-size. {first_line(error)}"
        ) from error
    except ValueError as error:  # the library's, about this model on these images
        raise RunError(f"{name}: {error}") from error
    finally:
        ticker.clear()


def _header(request: Request, target: Target, batches: Batches) -> dict[str, Any]:
    """What the file says beside the rows."""
    asked = asdict(request)
    return {
        "request": {key: str(value) if isinstance(value, Path) else value for key, value in asked.items()},
        "model": {
            "described": target.described,
            "class": type(target.model).__name__,
            "weights": sum(weight.numel() for weight in target.model.parameters()),
            "images": list(batches[0][0].shape[1:]),
            "preparation": asdict(target.preparation),
        },
        "images": sum(len(labels) for _, labels in batches),
        "environment": environment(str(batches[0][0].device)),
    }


def _line(found: Found, seconds: float) -> str:
    spread = "" if found.error is None else f"± {found.error:.2g}"
    return f"{found.name:<14} {found.value:>10.4g} {spread:<10} {seconds:7.1f} s   {found.meaning}\n"
