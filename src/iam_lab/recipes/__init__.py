"""Every experiment of the paper as a typed value, its numbers, and what a run of it costs."""

from iam_lab.recipes.registry import all_recipes, find_recipe, matching, recipes_for
from iam_lab.recipes.schema import Config, Recipe

__all__ = ["Config", "Recipe", "all_recipes", "find_recipe", "matching", "recipes_for"]
