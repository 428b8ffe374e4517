"""``iam recipes``: what can be run, with the paper's number and the cost."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from iam_lab.errors import LabError
from iam_lab.recipes.listing import details, listing, overview
from iam_lab.recipes.registry import all_recipes, find_recipe, matching


def recipes(pattern: Annotated[str | None, tyro.conf.Positional] = None) -> int:
    """List recipes with the paper's number, the runs, their cost and what the paper leaves unstated.

    Args:
        pattern: a recipe's name shows it in full; a part of a name, a pattern with * or a label such as tab:1
            lists what matches; nothing lists everything, grids as one line.
    """
    if pattern is None:
        sys.stdout.write(overview() + "\n")
        return 0
    if any(recipe.name == pattern for recipe in all_recipes()):
        sys.stdout.write(details(find_recipe(pattern)) + "\n")
        return 0
    found = matching(pattern)
    if not found:
        find_recipe(pattern)  # its error names what is close
    sys.stdout.write(listing(found) + "\n")
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    try:
        return tyro.cli(recipes, prog="iam recipes", args=list(arguments))
    except LabError as error:
        sys.stderr.write(f"iam recipes: {error}\n")
        return 1
