"""Dataclasses from and to plain JSON values, strictly: a wrong name or type is an error that names the field."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from iam_lab.errors import RecipeError

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dicts, lists and numbers, as ``json`` writes and :func:`from_plain` reads them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(inner) for inner in value]
    return value


def from_plain(kind: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """An instance of the dataclass ``kind``; what is missing keeps its default.

    >>> from iam_lab.recipes.schema import Config
    >>> from_plain(Config, {"optimizer": {"lr": 1}}).optimizer.lr
    1.0
    >>> from_plain(Config, {"optimizer": {"learning_rate": 1}})
    Traceback (most recent call last):
        ...
    iam_lab.errors.RecipeError: There is no field 'optimizer.learning_rate'; optimizer has name, lr, ...
    >>> from_plain(Config, {"training": {"epochs": "many"}})
    Traceback (most recent call last):
        ...
    iam_lab.errors.RecipeError: training.epochs must be int, found 'many'.
    """
    if not isinstance(values, Mapping):
        raise RecipeError(f"{where or 'The config'} must be a group of fields, found {values!r}.")
    hints = _hints(kind)
    for name in values:
        if name not in hints:
            raise RecipeError(_unknown(where, str(name), hints))
    arguments = {name: _value(hints[name], given, _join(where, name)) for name, given in values.items()}
    return kind(**arguments)


def field_types(kind: type, where: str = "") -> dict[str, Any]:
    """Every field of a dataclass and of those inside it, by its dotted path, with its type.

    >>> from iam_lab.recipes.schema import Config
    >>> field_types(Config)["optimizer.lr"]
    <class 'float'>
    """
    found: dict[str, Any] = {}
    for name, hint in _hints(kind).items():
        path = _join(where, name)
        found |= field_types(hint, path) if _is_group(hint) else {path: hint}
    return found


def flat(value: Any, where: str = "") -> dict[str, Any]:
    """Every leaf of a dataclass by its dotted path; options count as leaves of their own."""
    plain = to_plain(value)
    if not isinstance(plain, Mapping):
        return {where: plain}
    found: dict[str, Any] = {}
    for name, inner in plain.items():
        found |= flat(inner, _join(where, str(name)))
    return found


def changes(before: Any, after: Any) -> dict[str, Any]:
    """The leaves of ``after`` that differ from ``before``; None for those that are gone.

    >>> from iam_lab.recipes.schema import Config
    >>> changes(Config(), Config(seed=3))
    {'seed': 3}
    """
    old, new = flat(before), flat(after)
    differing = {path: value for path, value in new.items() if path not in old or old[path] != value}
    return differing | {path: None for path in old if path not in new}


def replaced(value: T, path: str, new: Any) -> T:
    """A copy with the field at a dotted path changed; options may be added.

    >>> from iam_lab.recipes.schema import Config
    >>> replaced(Config(), "optimizer.options.nesterov", True).optimizer.options["nesterov"]
    True
    """
    return updated(value, {path: new})


def updated(value: T, new: Mapping[str, Any]) -> T:
    """A copy with several fields changed at once, so that what does not go together in between may change.

    >>> from iam_lab.recipes.schema import Config
    >>> updated(Config(), {"objective.name": "sam", "objective.rho": 0.05}).objective.rho
    0.05
    """
    plain = to_plain(value)
    for path, given in new.items():
        *groups, last = path.split(".")
        inner = plain
        for depth, group in enumerate(groups):
            if not isinstance(inner.get(group), dict):
                raise RecipeError(_unknown(".".join(groups[:depth]), group, inner))
            inner = inner[group]
        inner[last] = to_plain(given)
    return from_plain(type(value), plain)


def _value(hint: Any, given: Any, where: str) -> Any:
    if _is_group(hint):
        return given if isinstance(given, hint) else from_plain(hint, given, where)
    fitting, value = _fit(hint, given)
    if not fitting:
        raise RecipeError(f"{where} must be {describe(hint)}, found {given!r}.")
    return value


def _fit(hint: Any, given: Any) -> tuple[bool, Any]:
    """Whether ``given`` is of the type, and what it is as that type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return given in arguments, given
    if origin in (Union, types.UnionType):
        exact = [argument for argument in arguments if type(given) is argument]
        tries = (_fit(argument, given) for argument in [*exact, *arguments])
        return next((found for found in tries if found[0]), (False, given))
    if origin is tuple:
        if not isinstance(given, Sequence) or isinstance(given, str):
            return False, given
        parts = [_fit(arguments[0], part) for part in given]
        return all(fitting for fitting, _ in parts), tuple(part for _, part in parts)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(given, Mapping):
            return False, given
        pairs = {str(key): _fit(arguments[1], inner) for key, inner in given.items()}
        return all(f for f, _ in pairs.values()), {key: inner for key, (_, inner) in pairs.items()}
    if hint is float and isinstance(given, int) and not isinstance(given, bool):
        return True, float(given)
    if hint is int and isinstance(given, bool):
        return False, given
    return isinstance(given, hint), given


def describe(hint: Any) -> str:
    """A type in words.

    >>> describe(int | None), describe(Literal["a", "b"]), describe(tuple[float, ...])
    ('int or None', "one of 'a', 'b'", 'a list of float')
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if origin in (Union, types.UnionType):
        return " or ".join(describe(argument) for argument in arguments)
    if origin is tuple:
        return f"a list of {describe(arguments[0])}"
    if origin is not None:
        return "named values"
    return "None" if hint is type(None) else str(hint.__name__)


def _unknown(where: str, name: str, known: Mapping[str, Any]) -> str:
    near = get_close_matches(name, known, n=1)
    hint = f" Did you mean {_join(where, near[0])!r}?" if near else ""
    return f"There is no field {_join(where, name)!r}; {where or 'a config'} has {', '.join(known)}.{hint}"


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind)}


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
