"""``iam data list | get | check``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from iam_lab.data import CATALOGUE, check, data_root, fetch, location
from iam_lab.errors import LabError

SPLITS = ("train", "test")

Names = Annotated[tuple[str, ...], tyro.conf.Positional]


def listed(root: Path | None = None) -> int:
    """Every data set, and where it lies.

    Args:
        root: folder of the data sets; by default IAM_DATA.
    """
    width = max(map(len, CATALOGUE))
    sys.stdout.write(f"data sets in {data_root(root)}\n")
    for name, spec in CATALOGUE.items():
        there = [split for split in SPLITS if name == "digits" or location(name, split, root)]
        state = ", ".join(there) if there else f"not here; iam data get {name}"
        size = f"{spec.image_size} x {spec.image_size}"
        sys.stdout.write(
            f"  {name:<{width}}  {spec.sizes['train']:>9,} + {spec.sizes['test']:>6,} images  {size:>9}  "
            f"{spec.classes:>4} classes  {state}\n"
        )
    return 0


def get(names: Names, root: Path | None = None) -> int:
    """Download data sets from the hub; what is there stays, what was begun is continued.

    Args:
        names: of the data sets.
        root: folder of the data sets; by default IAM_DATA.
    """
    if not names:
        raise LabError(f"iam data get needs the name of a data set; there are {', '.join(CATALOGUE)}.")
    for name in names:
        paths = fetch(name, root=root)
        where = f"in {paths[0].parent}" if paths else "comes with scikit-learn"
        sys.stdout.write(f"{name}: {where}\n")
    return 0


def checked(names: Names = (), root: Path | None = None) -> int:
    """Decode every image, count the classes, compare with the published numbers.

    Args:
        names: of the data sets; by default those that are there.
        root: folder of the data sets; by default IAM_DATA.
    """
    chosen = names or tuple(name for name in CATALOGUE if name == "digits" or location(name, "train", root))
    good = True
    for name in chosen:
        for split in SPLITS:
            report = check(name, split, root)
            verdict = "; ".join(report.problems) or "good"
            mean = "/".join(f"{value:.4f}" for value in report.mean)
            fewest, most = report.per_class
            sys.stdout.write(
                f"{name}/{split}: {report.images} images, {fewest} to {most} a class, mean {mean or '-'}: {verdict}\n"
            )
            good &= not report.problems
    return 0 if good else 1


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    status: int = tyro.extras.subcommand_cli_from_dict(
        {"list": listed, "get": get, "check": checked}, prog="iam data", args=list(arguments)
    )
    return status
