"""Every recipe by its name, and every recipe of a table or figure."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache

from iam_lab.errors import RecipeError
from iam_lab.recipes import (
    fig6,
    fine_tuning,
    fix_match,
    heatmap,
    iam_wrn28,
    imagenet_resnet50,
    imagenet_vit,
    local,
    local_few_labels,
    measure_comparison,
    self_supervised,
    semi_cifar,
    small_transformers,
    tab1,
)
from iam_lab.recipes.family import Family
from iam_lab.recipes.schema import Recipe

FAMILIES: tuple[Family, ...] = (
    local.DIGITS,
    local.SMALL,
    local_few_labels.SEMI,
    local_few_labels.FIXMATCH,
    local_few_labels.SIMCLR,
    local_few_labels.COMPARED,
    tab1.FAMILY,
    imagenet_resnet50.FAMILY,
    imagenet_vit.FAMILY,
    fine_tuning.FAMILY,
    small_transformers.FAMILY,
    iam_wrn28.FAMILY,
    fig6.FAMILY,
    heatmap.FAMILY,
    measure_comparison.FAMILY,
    semi_cifar.FAMILY,
    fix_match.FAMILY,
    fix_match.SHORT,
    self_supervised.FAMILY,
)
"""In the order of the list that ``iam recipes`` prints."""


@cache
def recipes_of_family(prefix: str) -> tuple[Recipe, ...]:
    """The recipes of one family, made once."""
    family = next(family for family in FAMILIES if family.prefix == prefix)
    return tuple(family.build())


def all_recipes() -> Iterator[Recipe]:
    """Every recipe there is."""
    for family in FAMILIES:
        yield from recipes_of_family(family.prefix)


def find_recipe(name: str) -> Recipe:
    """The recipe called ``name``.

    >>> find_recipe("tab1-cifar10-iam-d").config.objective.rho
    0.1
    >>> find_recipe("tab1-cifar10-iamd")
    Traceback (most recent call last):
        ...
    iam_lab.errors.RecipeError: There is no recipe 'tab1-cifar10-iamd'. Did you mean tab1-cifar10-iam-d, ...
    """
    for family in _families_of(name):
        for recipe in recipes_of_family(family.prefix):
            if recipe.name == name:
                return recipe
    near = get_close_matches(name, [recipe.name for recipe in all_recipes()], n=3)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    raise RecipeError(f"There is no recipe {name!r}.{hint} 'iam recipes' lists them.")


def matching(pattern: str) -> tuple[Recipe, ...]:
    """The recipe of this name; else those whose name contains it, or matches where it has ``*``.

    A label of the paper means its cells.

    >>> [recipe.name for recipe in matching("tab1-svhn-*iam-d")]
    ['tab1-svhn-iam-d']
    >>> [recipe.name for recipe in matching("tab1-svhn-sgd")]  # and not tab1-svhn-sgd-400
    ['tab1-svhn-sgd']
    """
    if ":" in pattern:
        return recipes_for(pattern)
    if exact := [recipe for recipe in all_recipes() if recipe.name == pattern]:
        return tuple(exact)
    wanted = pattern if any(mark in pattern for mark in "*?[") else f"*{pattern}*"
    return tuple(recipe for recipe in all_recipes() if fnmatchcase(recipe.name, wanted))


def recipes_for(label: str, dataset: str | None = None) -> tuple[Recipe, ...]:
    """The recipes that fill cells of a table or figure, ``"tab:1"``.

    >>> len(recipes_for("tab:1", "cifar10"))
    6
    """
    return tuple(
        recipe
        for recipe in all_recipes()
        if any(cell.label == label and dataset in (None, cell.dataset) for cell in recipe.cells)
    )


def _families_of(name: str) -> list[Family]:
    return [family for family in FAMILIES if name.startswith(f"{family.prefix}-")]
