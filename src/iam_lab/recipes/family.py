"""Recipes that belong together, made when they are asked for: the paper's grids have over a thousand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from iam_lab.recipes.schema import Cell, Config, Objective, Recipe, Value
from iam_lab.recipes.typed import changes

METHODS = ("sgd", "sam", "asam", "iam-d", "iam-s")

SAM_PAPER = "the paper gives none; the value of Foret et al. for this data set"
ASAM_PAPER = "the paper gives none; the value of Kwon et al. for this data set"
SAM_DEFAULT = "the paper gives none; the default of Foret et al."
ASAM_DEFAULT = "the paper gives none; the value of Kwon et al. for CIFAR-10"
START = "sigma is not stated; the library's default, which suits the precision ({there})"

SGD_UNSTATED: Mapping[str, str] = {
    "optimizer.options.nesterov": "not mentioned; off, as in the released code",
    "optimizer.decay_norms_and_biases": "not mentioned; all weights decay, as in the released code",
    "training.precision": "not mentioned; fp32",
}


@dataclass(frozen=True)
class Family:
    """The recipes of one table or figure.

    Attributes:
        prefix: what all their names begin with.
        title: what they are, in a line.
        build: makes them.
        folded: whether a list shows one line for all of them, as for a grid.
    """

    prefix: str
    title: str
    build: Callable[[], Iterable[Recipe]]
    folded: bool = False


def objective(
    method: str,
    *,
    rho: float | None = None,
    beta: float | None = None,
    steps: int = 1,
    sub_batch: int | None = None,
    options: Mapping[str, Value] | None = None,
) -> Objective:
    """The objective of a row of the paper; ``"sgd"`` and ``"adamw"`` are the plain one.

    >>> objective("iam-d", rho=0.1, beta=1.0).steps
    1
    """
    if method in ("sgd", "adamw"):
        return Objective("plain")
    if method == "sam":
        return Objective("sam", rho, sub_batch=sub_batch, options=options or {})
    if method == "asam":
        return Objective("asam", rho, eta=0.01, sub_batch=sub_batch, options=options or {})
    if method == "iam-s":
        return Objective("iam-s", rho, steps=steps, sub_batch=sub_batch, options=options or {})
    if method == "iam-d":
        return Objective("iam-d", rho, beta, steps, sub_batch=sub_batch, options=options or {})
    raise ValueError(f"No row of the paper is called {method!r}.")


def unstated_for(
    method: str, *, rho: str = "", beta: str = "", start: str = "released code: 0.05"
) -> dict[str, str]:
    """What the paper leaves out about an objective, with why the value was chosen.

    Args:
        method: the row.
        rho: why this radius, where the paper gives none.
        beta: likewise.
        start: the norm of the random start in the released code; by default that of its supervised script.
    """
    found: dict[str, str] = {}
    if rho and method not in ("sgd", "adamw"):
        found["objective.rho"] = rho
    if beta and method == "iam-d":
        found["objective.beta"] = beta
    if method == "asam":
        found["objective.eta"] = "the paper gives none; the value of Kwon et al."
    if method in ("iam-d", "iam-s"):
        found["objective.options.start_norm"] = START.format(there=start)
    return found


def released(recipe: Recipe, config: Config, note: str) -> Recipe:
    """The same row as the authors' code has it, under a name of its own and filling no cell of ours.

    What the paper leaves unstated and the code says is no guess any more: such fields lose their mark.
    """
    marks = still_unstated(recipe, config)
    return replace(recipe, name=f"{recipe.name}-released", config=config, cells=(), unstated=marks, note=note)


def still_unstated(recipe: Recipe, config: Config) -> dict[str, str]:
    """The marks of a recipe that hold for another config as well: those on fields that are the same there.

    >>> from iam_lab.recipes.typed import replaced
    >>> guess = Recipe("mine", Config(), unstated={"objective.rho": "a guess", "optimizer.lr": "a guess"})
    >>> still_unstated(guess, replaced(guess.config, "optimizer.lr", 0.2))
    {'objective.rho': 'a guess'}
    """
    changed = changes(recipe.config, config)
    return {path: why for path, why in recipe.unstated.items() if path not in changed}


def cell(label: str, dataset: str, method: str, at: str = "", **more: str) -> Cell:
    """A place in the paper; ``at`` is what else the table varies."""
    return Cell(label, dataset, method, at, **more)
