"""``iam study``: fig:measure_comparison at a chosen size."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from iam_lab.commands.jobs import Job, devices_here, jobs_of, run_all
from iam_lab.commands.parsing import at_least_one, parsed
from iam_lab.recipes.measure_comparison import MEASURES
from iam_lab.recipes.registry import find_recipe, recipes_for
from iam_lab.recipes.schema import Recipe
from iam_lab.report.statistics import kendall_tau
from iam_lab.runs.files import write_json
from iam_lab.runs.folder import RunFolder

LABEL = "fig:measure_comparison"

Size = Literal["digits", "small", "6cnn", "wrn-28-2"]

SMALL: Mapping[str, tuple[str, int]] = MappingProxyType(
    {"digits": ("digits-sgd", 60), "small": ("small-cifar10-sgd", 30)}
)
"""Size to the recipe it varies, and for how many epochs that is trained."""

GRID: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "optimizer.lr": (0.01, 0.03, 0.1),
        "training.batch_size": (32, 128),
        "optimizer.weight_decay": (0.0, 1e-3),
    }
)
"""What the small sizes vary: the fields that the paper does."""

EXTRA = MappingProxyType({"lambda_max(F)": "last.lambda_max_fisher"})


def jobs_for(size: Size, seeds: int, root: Path, settings: Sequence[str]) -> list[Job]:
    """Every run of a size.

    >>> len(jobs_for("digits", 2, Path("runs"), [])), len(jobs_for("6cnn", 5, Path("runs"), []))
    (24, 600)
    """
    if size not in SMALL:
        chosen = [recipe for recipe in recipes_for(LABEL) if recipe.config.model.name == size]
        return [job for recipe in chosen for job in jobs_of(recipe, range(seeds), root, settings)]
    name, epochs = SMALL[size]
    base = find_recipe(name)
    measured = replace(
        base.config.measurement, every=epochs, split="validation", steps=3, restarts=3, hessian=True
    )
    config = replace(
        base.config,
        data=replace(base.config.data, validation=max(base.config.data.validation, 0.1)),
        training=replace(base.config.training, epochs=epochs),
        evaluation=replace(base.config.evaluation, every=epochs, train_images=-1),
        measurement=measured,
    )
    # Named as a recipe of its own: only what the grid varies belongs into the folders' names.
    study = Recipe(f"study-{size}", config)
    points = product(*GRID.values())
    grids = [[f"{path}={value}" for path, value in zip(GRID, point, strict=True)] for point in points]
    return [job for grid in grids for job in jobs_of(study, range(seeds), root, [*grid, *settings])]


def taus(jobs: Sequence[Job]) -> dict[str, Any]:
    """Kendall's tau of every measure with test error minus training error, over the finished runs."""
    points = []
    for job in jobs:
        folder = RunFolder(job.path)
        if not folder.finished:
            continue
        last = folder.summary()["last"]
        points.append(
            {"folder": str(job.path), "gap": last["test_error"] - last["train_clean_error"], **last}
        )
    found: dict[str, Any] = {"n": len(points), "tau": {}}
    for name, place in {**MEASURES, **EXTRA}.items():
        key = place.removeprefix("last.")
        both = [(p[key], p["gap"]) for p in points if p.get(key) is not None]
        found["tau"][name.removeprefix("measure=")] = kendall_tau([x for x, _ in both], [y for _, y in both])
    keys = [place.removeprefix("last.") for place in (*MEASURES.values(), *EXTRA.values())]
    found["runs"] = [
        {name: point.get(name) for name in ("folder", "gap", "test_error", "train_clean_error", *keys)}
        for point in points
    ]
    return found


def study(
    size: Size = "digits",
    seeds: int = 1,
    root: Path = Path("runs"),
    devices: tuple[str, ...] = (),
    set: tuple[str, ...] = (),
    dry_run: bool = False,
) -> int:
    """Train a grid of settings and see which measure ranks them as their generalisation gap does.

    Runs that are finished are not repeated. Writes ROOT/study-SIZE.json.

    Args:
        size: digits (12 settings, minutes on a CPU), small (12, hours on a CPU), 6cnn (the paper's 120) or
            wrn-28-2 (its 540).
        seeds: so many runs of each setting; the paper has 5 of the 6cnn.
        root: folder of all runs.
        devices: such as cpu or cuda:0 cuda:1; by default every GPU, or else the CPU.
        set: change fields of every run, as in --set training.epochs=5.
        dry_run: say how many runs there are, and run nothing.
    """
    at_least_one("--seeds", seeds)
    jobs = jobs_for(size, seeds, root, set)
    left = sum(job.state != "finished" for job in jobs)
    sys.stdout.write(f"{len(jobs)} runs, {left} to make\n")
    if dry_run:
        return 0
    failed = run_all(jobs, devices or devices_here(), quiet=True)
    found = taus(jobs)
    write_json(root / f"study-{size}.json", found)
    for name, tau in found["tau"].items():
        told = "undefined" if tau is None else f"{tau:+.3f}"
        sys.stdout.write(f"Kendall's tau of {name:<14} with the gap: {told}   n = {found['n']}\n")
    for job, reason in failed:
        sys.stderr.write(f"failed: {job.path}: {reason}\n")
    return 1 if failed else 0


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    return parsed(study, "study", arguments)
