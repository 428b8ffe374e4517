"""Recipes as text: a list of many, or everything about one."""

from __future__ import annotations

from collections.abc import Sequence

from iam_lab.recipes.cost import PLAIN_PASSES, step_image_passes, step_passes, training_flops
from iam_lab.recipes.family import Family
from iam_lab.recipes.few_labels import reads
from iam_lab.recipes.paper import PLACES
from iam_lab.recipes.registry import FAMILIES, recipes_of_family
from iam_lab.recipes.schema import Config, Recipe
from iam_lab.recipes.typed import flat

HEAD = ("", "paper", "runs", "cost", "not stated in the paper")


def overview() -> str:
    """Every family, its recipes below it; a grid as one line."""
    blocks = [_block(family, recipes_of_family(family.prefix), family.folded) for family in FAMILIES]
    return "\n\n".join([*blocks, EXPLANATION])


def listing(recipes: Sequence[Recipe]) -> str:
    """These recipes, under their families."""
    names = {recipe.name for recipe in recipes}
    blocks = []
    for family in FAMILIES:
        chosen = [recipe for recipe in recipes_of_family(family.prefix) if recipe.name in names]
        if chosen:
            blocks.append(_block(family, chosen, folded=False))
    return "\n\n".join([*blocks, EXPLANATION])


def details(recipe: Recipe) -> str:
    """Everything about one recipe; values that the paper leaves unstated are marked, with why they are so."""
    config = recipe.config
    lines = [recipe.name, ""]
    for cell in recipe.cells:
        at = " ".join(filter(None, (cell.dataset, cell.method, cell.cell)))
        paper = cell.paper
        told = "a picture, no number in its source" if paper is None else f"{paper.metric} {paper}"
        runs = f", n = {paper.n}" if paper is not None and paper.n is not None else ""
        lines.append(f"  fills   {cell.label} ({PLACES[cell.label].title}), {at}: {told}{runs}")
    lines += [
        f"  runs    {recipe.seeds} (seeds 0 to {recipe.seeds - 1})"
        if recipe.seeds > 1
        else "  runs    1 (seed 0)",
        f"  cost    {_step_text(config)}; {cost_text([recipe])} in all",
    ]
    if recipe.note:
        lines.append(f"  note    {recipe.note}")
    lines.append("")
    values = {path: _shown(value) for path, value in flat(config).items() if reads(config.task, path)}
    values |= {path: "not set" for path in recipe.unstated if path not in values}
    width = max(map(len, values))
    for path in _in_order(values):
        reason = recipe.unstated.get(path)
        mark = f"   ? {reason}" if reason else ""
        lines.append(f"  {path:<{width}}  {values[path]:<12}{mark}".rstrip())
    lines += ["", "  ? marks what the paper does not state, and why this value was chosen."]
    return "\n".join(lines)


UNITS = (("EFLOP", 1e18), ("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9))

EXPLANATION = (
    "cost: floating-point operations of all runs, training alone; 1 PFLOP = 10^15. "
    "'iam recipes NAME' shows one recipe in full."
)


def cost_text(recipes: Sequence[Recipe]) -> str:
    """The operations of all runs of these recipes.

    >>> from iam_lab.recipes import find_recipe
    >>> cost_text([find_recipe("tab1-cifar10-sgd")])
    '279 PFLOP'
    """
    costs = [training_flops(recipe.config) for recipe in recipes]
    known = [cost * recipe.seeds for cost, recipe in zip(costs, recipes, strict=True) if cost is not None]
    if len(known) < len(recipes):
        return "not counted"
    total = sum(known)
    unit, size = next((unit for unit in UNITS if total >= unit[1]), UNITS[-1])
    return f"{total / size:.3g} {unit}"


def paper_text(recipe: Recipe) -> str:
    """The paper's numbers for the first of its cells, one for each metric there."""
    if not recipe.cells:
        return "-"
    first = recipe.cells[0]
    found = [cell.paper for cell in recipe.cells if (cell.label, cell.cell) == (first.label, first.cell)]
    if all(number is None for number in found):
        return "picture"
    if first.metric == "tau":
        return "point of tau"
    return ", ".join(
        f"{number} accuracy" if number.metric.endswith("accuracy") else str(number)
        for number in found
        if number is not None
    )


def _step_text(config: Config) -> str:
    """What a step costs; by its images where not all of them go through the same passes."""
    if config.task != "supervised":
        return f"{step_image_passes(config):,} forward passes of one image a step"
    passes = step_passes(config.objective)
    ratio = f"{passes / PLAIN_PASSES:.3g} plain step" + ("" if passes == PLAIN_PASSES else "s")
    return f"{passes} forward passes' worth a step = {ratio}"


def _block(family: Family, recipes: Sequence[Recipe], folded: bool) -> str:
    rows = [HEAD, *([_folded_row(family, recipes)] if folded else [_row(recipe) for recipe in recipes])]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}  {row[4]}"
        for row in rows
    ]
    return "\n".join([family.title, *(line.rstrip() for line in lines)])


def _row(recipe: Recipe) -> tuple[str, str, str, str, str]:
    unstated = _unstated([recipe])
    return recipe.name, paper_text(recipe), str(recipe.seeds), cost_text([recipe]), unstated


def _folded_row(family: Family, recipes: Sequence[Recipe]) -> tuple[str, str, str, str, str]:
    runs = sum(recipe.seeds for recipe in recipes)
    papers = {paper_text(recipe) for recipe in recipes if recipe.cells}
    told = papers.pop() if len(papers) == 1 else f"{len(papers)} numbers"
    name = f"{family.prefix}-...  {len(recipes)} recipes"
    return name, told, str(runs), cost_text(recipes), _unstated(recipes)


def _unstated(recipes: Sequence[Recipe]) -> str:
    """Short names of the fields, those of the objective first: they matter most."""
    paths = list(dict.fromkeys(path for recipe in recipes for path in recipe.unstated))
    paths.sort(key=lambda path: not path.startswith("objective."))
    names = [_short(path) for path in paths]
    more = f" +{len(names) - 4}" if len(names) > 4 else ""
    return " ".join(names[:4]) + more


def _short(path: str) -> str:
    """A field's name alone where that says enough: ``rho``, but ``schedule.name`` and ``measurement.rho``."""
    group, _, name = path.partition(".")
    return path if name == "name" or group == "measurement" else path.rpartition(".")[2]


def _in_order(values: dict[str, str]) -> list[str]:
    """Fields as the config has them, what is not set beside the options of its group."""
    groups = list(dict.fromkeys(path.partition(".")[0] for path in values))
    return sorted(values, key=lambda path: groups.index(path.partition(".")[0]))


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value)
