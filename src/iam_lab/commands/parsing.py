"""Command lines from typed functions and dataclasses, with ``name=value`` for a recipe's options."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_origin

import tyro

from iam_lab.errors import RecipeError
from iam_lab.recipes.few_labels import refuse_unread
from iam_lab.recipes.ranges import check_values
from iam_lab.recipes.schema import Config, Value
from iam_lab.recipes.typed import changes, field_types, updated

T = TypeVar("T")


def parsed(kind: Callable[..., T], command: str, arguments: Sequence[str], default: T | None = None) -> T:
    """What tyro makes of ``arguments``: an instance of a dataclass, or a function's result."""
    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(_options_rule)
    given: dict[str, Any] = {} if default is None else {"default": default}
    result: T = tyro.cli(kind, prog=f"iam {command}", args=list(arguments), registry=registry, **given)
    return result


def as_flags(arguments: Sequence[str]) -> list[str]:
    """A truth may be written like any other value: tyro knows it as a flag alone.

    >>> as_flags(["--training.compile", "True", "--training.cuda-graph=false", "--seed", "1"])
    ['--training.compile', '--training.no-cuda-graph', '--seed', '1']
    """
    found: list[str] = []
    left = [part for text in arguments for part in (text.split("=", 1) if _truth(text) else [text])]
    while left:
        flag = left.pop(0)
        if _truth(flag) and left and left[0].lower() in ("true", "false"):
            group, _, name = flag.rpartition(".")
            flag = flag if left.pop(0).lower() == "true" else f"{group}.no-{name}"
        found.append(flag)
    return found


def _truth(text: str) -> bool:
    """Whether this is the flag of a field that is true or false."""
    path = text.partition("=")[0].removeprefix("--").replace("-", "_")
    return text.startswith("--") and field_types(Config).get(path) is bool


def at_least_one(flag: str, value: int | None) -> None:
    """Refuse a number of things to do that is none.

    >>> at_least_one("--seeds", 0)
    Traceback (most recent call last):
        ...
    iam_lab.errors.RecipeError: --seeds must be an integer of 1 or more, found 0.
    """
    if value is not None and value < 1:
        raise RecipeError(f"{flag} must be an integer of 1 or more, found {value}.")


def changed(config: Config, settings: Sequence[str]) -> Config:
    """The config with ``path=value`` settings.

    >>> changed(Config(), ["training.epochs=3", "optimizer.options.nesterov=True"]).training.epochs
    3
    """
    new = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise RecipeError(
                f"A setting is written FIELD=VALUE, as in training.epochs=3; found {setting!r}."
            )
        new[path] = value_of(text)
    return updated(config, new)


def changed_fields(recipe: Config, config: Config) -> dict[str, Any]:
    """What a command changes about a recipe, by dotted path, once nothing about it is wrong.

    A change that would change nothing is refused; only changes count there: a recipe whose task alone is
    changed may go on with what it says to its own task.

    >>> changed_fields(Config(), changed(Config(), ["task=fixmatch", "semi.labels=40"]))
    {'semi.labels': 40, 'task': 'fixmatch'}
    """
    told = changes(recipe, config)
    refuse_unread(config.task, told)
    check_values(config)
    return told


def value_of(text: str) -> Value:
    """A number, a truth, None or a tuple where it reads like one, else the text itself.

    >>> value_of("0.1"), value_of("(0.9, 0.95)"), value_of("true"), value_of("carry")
    (0.1, (0.9, 0.95), True, 'carry')
    """
    plain = {"true": "True", "false": "False", "none": "None"}.get(text.lower(), text)
    try:
        value: Value = ast.literal_eval(plain)
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, bool | int | float | str | tuple | None) else text


def _options_rule(info: tyro.constructors.PrimitiveTypeInfo) -> Any:
    if get_origin(info.type) is not Mapping:
        return None
    return tyro.constructors.PrimitiveConstructorSpec[Mapping[str, Value]](
        nargs="*",
        metavar="[NAME=VALUE ...]",
        instance_from_str=_options_of,
        is_instance=lambda value: isinstance(value, Mapping),
        str_from_instance=lambda options: [f"{name}={value}" for name, value in options.items()],
    )


def _options_of(settings: Sequence[str]) -> Mapping[str, Value]:
    options = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"an option is written NAME=VALUE, found {setting!r}")
        options[name] = value_of(text)
    return options
