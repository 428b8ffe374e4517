"""Where a run lies by default."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from iam_lab.recipes.schema import Config
from iam_lab.recipes.typed import field_types

LONGEST = 100


def folder_of(root: Path, recipe: str, seed: int, changed: Mapping[str, Any] | None = None) -> Path:
    """``ROOT/RECIPE/seedN``; what was changed about the recipe becomes part of the name.

    The same command therefore finds its own run again, and a changed recipe never another's.

    >>> folder_of(Path("runs"), "tab1-cifar10-sgd", 0).as_posix()
    'runs/tab1-cifar10-sgd/seed0'
    >>> folder_of(Path("runs"), "digits-sgd", 1, {"training.epochs": 2, "seed": 1}).as_posix()
    'runs/digits-sgd+epochs=2/seed1'
    >>> folder_of(Path("runs"), "digits-sgd", 1, {"probe.epochs": 2}).as_posix()
    'runs/digits-sgd+probe.epochs=2/seed1'
    """
    told = {path: value for path, value in (changed or {}).items() if path != "seed"}
    name = recipe + "".join(f"+{_short(path)}={_text(told[path])}" for path in sorted(told))
    if len(name) > LONGEST or not all(letter.isalnum() or letter in "._-,+=" for letter in name):
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:10]
        name = f"{recipe}+{digest}"
    return root / name / f"seed{seed}"


def _short(path: str) -> str:
    """A field's own name where the first field called so is meant, else its group with it."""
    group, _, name = path.partition(".")
    name = name.removeprefix("options.")
    return name if _first().get(name) == path else f"{group}.{name}"


@cache
def _first() -> Mapping[str, str]:
    """The name of a field to the first path that ends in it: objective.rho before measurement.rho."""
    return {path.rpartition(".")[2]: path for path in reversed(field_types(Config))}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)
