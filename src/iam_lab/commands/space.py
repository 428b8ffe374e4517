"""What a sweep searches: fields of a config, and what each of them may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, get_args

from iam_lab.commands.parsing import value_of
from iam_lab.errors import RecipeError
from iam_lab.recipes.ranges import check_values
from iam_lab.recipes.schema import Config
from iam_lab.recipes.typed import field_types, updated

CHECKED = 10_000
"""So many corners of a space are looked at before the first trial."""


@dataclass(frozen=True)
class Range:
    """What a field may be: one of ``choices``, or a number between ``low`` and ``high``.

    ``whole`` numbers are those of a field that takes no others.
    """

    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    @property
    def ends(self) -> tuple[Any, ...]:
        """The choices, or both ends."""
        ends = (int(self.low), int(self.high)) if self.whole else (self.low, self.high)
        return self.choices or ends

    def suggested(self, trial: Any, path: str) -> Any:
        """What an optuna trial has for the field at ``path``."""
        if self.choices:
            return trial.suggest_categorical(path, list(self.choices))
        suggest = trial.suggest_int if self.whole else trial.suggest_float
        return suggest(path, *self.ends, log=self.log)


def range_of(text: str, *, whole: bool = False) -> Range:
    """``0.05,0.1`` are choices, ``0.1:1`` is uniform, ``log:0.01:1`` uniform in the logarithm.

    >>> range_of("0.05,0.1").choices, range_of("log:0.01:1").high, range_of("16:64", whole=True).ends
    ((0.05, 0.1), 1.0, (16, 64))
    """
    kind, colon, rest = text.partition(":")
    if not colon:
        return Range(choices=tuple(value_of(part) for part in text.split(",")))
    low, _, high = (rest if kind == "log" else text).partition(":")
    try:
        found = Range(low=float(low), high=float(high), log=kind == "log", whole=whole)
    except ValueError as error:
        raise RecipeError(f"A range is LOW:HIGH or log:LOW:HIGH, found {text!r}.") from error
    if not (found.low < found.high < float("inf")) or (found.log and found.low <= 0):
        raise RecipeError(f"A range goes upwards, one in the logarithm from above 0; found {text!r}.")
    if whole and not (found.low.is_integer() and found.high.is_integer()):
        raise RecipeError(f"A range of an integer field has integers for its ends, found {text!r}.")
    return found


def space_of(config: Config, settings: Sequence[str]) -> dict[str, Range]:
    """Field to range; every choice and both ends of every range are checked now, and not in a trial hours later."""
    space: dict[str, Range] = {}
    types = field_types(Config)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise RecipeError(
                f"A range is written FIELD=RANGE, as in objective.rho=0.05,0.1; found {setting!r}."
            )
        kind = types.get(path)
        space[path] = range_of(text, whole=int in (kind, *get_args(kind)))
    if not space:
        raise RecipeError("--space names the fields to search, as in --space objective.rho=0.05,0.1.")
    for point in islice(product(*(found.ends for found in space.values())), CHECKED):
        check_values(updated(config, dict(zip(space, point, strict=True))))
    return space


def grid_of(space: Mapping[str, Range]) -> list[dict[str, Any]]:
    """Every point of a space of choices.

    >>> grid_of({"a": Range(choices=(1, 2)), "b": Range(choices=(3,))})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    for path, found in space.items():
        if not found.choices:
            raise RecipeError(
                f"A grid needs choices, {path} has a range: use --sampler tpe, or a list a,b,c."
            )
    return [
        dict(zip(space, point, strict=True))
        for point in product(*(found.choices for found in space.values()))
    ]
