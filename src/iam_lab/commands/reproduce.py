"""``iam reproduce tab:1 --dataset cifar10 --seeds 3``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from iam_lab.commands.jobs import Job, devices_here, jobs_of, run_all
from iam_lab.commands.parsing import at_least_one, parsed
from iam_lab.errors import RecipeError
from iam_lab.recipes.registry import matching, recipes_for
from iam_lab.recipes.schema import Recipe


def reproduce(
    what: Annotated[str, tyro.conf.Positional],
    dataset: str | None = None,
    method: str | None = None,
    seeds: int | None = None,
    root: Path = Path("runs"),
    devices: tuple[str, ...] = (),
    set: tuple[str, ...] = (),
    dry_run: bool = False,
    quiet: bool = False,
) -> int:
    """Run what is missing of a table or figure, and continue what is unfinished; one process a GPU.

    Args:
        what: a label of the paper such as tab:1, or a recipe's name, or a pattern with *.
        dataset: only this data set.
        method: only this method: sgd, sam, asam, iam-d, iam-s.
        seeds: so many seeds, from 0; by default as many as the paper has.
        root: folder of all runs.
        devices: such as cpu or cuda:0 cuda:1; by default every GPU, or else the CPU.
        set: change fields of every recipe, as in --set training.epochs=24.
        dry_run: say what would be run, and run nothing.
        quiet: print no metrics.
    """
    at_least_one("--seeds", seeds)
    jobs = [
        job
        for recipe in _chosen(what, dataset, method)
        for job in jobs_of(recipe, range(recipe.seeds if seeds is None else seeds), root, set)
    ]
    counts = Counter(job.state for job in jobs)
    sys.stdout.write(f"{what}: " + ", ".join(f"{n} {state}" for state, n in sorted(counts.items())) + "\n")
    if dry_run:
        sys.stdout.writelines(f"  {job.state:<10}  {job.path}\n" for job in jobs)
        return 0
    failed = run_all(jobs, devices or devices_here(), quiet=quiet)
    _tell(jobs, failed, root)
    return 1 if failed else 0


def _chosen(what: str, dataset: str | None, method: str | None) -> Sequence[Recipe]:
    found = recipes_for(what) if ":" in what else matching(what)
    kept = [
        recipe
        for recipe in found
        if dataset in (None, recipe.config.data.name)
        and (method is None or recipe.name.endswith(f"-{method}") or _fills(recipe, method))
    ]
    if not kept:
        narrowed = f" with these restrictions ({len(found)} without)" if found else ""
        raise RecipeError(f"No recipe is for {what!r}{narrowed}. 'iam recipes' lists them.")
    return kept


def _fills(recipe: Recipe, method: str) -> bool:
    return any(cell.method == method for cell in recipe.cells)


def _tell(jobs: Sequence[Job], failed: Sequence[tuple[Job, str]], root: Path) -> None:
    done = sum(job.state == "finished" for job in jobs)
    sys.stdout.write(f"{done} of {len(jobs)} runs are finished. 'iam report {root}' compares them.\n")
    for job, reason in failed:
        sys.stderr.write(f"failed: {job.path}: {reason}\n")


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    return parsed(reproduce, "reproduce", arguments)
