"""A folder's name: the same command finds its own run again, a changed recipe never another's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iam_lab.recipes.schema import Config
from iam_lab.recipes.typed import field_types
from iam_lab.runs.naming import folder_of


def name_of(**changed: Any) -> str:
    told = {path.replace("__", "."): value for path, value in changed.items()}
    return folder_of(Path("runs"), "mine", 0, told).parent.name


def test_no_two_fields_share_a_name() -> None:
    names = {path: folder_of(Path(), "mine", 0, {path: 1}).parent.name for path in field_types(Config)}
    del names["seed"]
    assert len(set(names.values())) == len(names)


CHANGES: list[dict[str, Any]] = [
    {"model__weights": "a/b"},
    {"model__weights": "a_b"},
    {"model__options__dropout": 0.1},
    {"objective__options__dropout": 0.1},
    {"schedule__milestones": (0.5, 0.75)},
    {"schedule__milestones": (0.575,)},
    {"objective__steps": 2},
    {"objective__steps": 2, "training__steps": 2},
]


def test_different_changes_have_different_folders() -> None:
    assert len({name_of(**changed) for changed in CHANGES}) == len(CHANGES)


def test_names_are_short_and_readable() -> None:
    assert name_of(objective__rho=0.2, schedule__milestones=(0.5, 0.75)) == "mine+rho=0.2+milestones=0.5,0.75"
    assert name_of(measurement__rho=0.2, training__steps=3) == "mine+measurement.rho=0.2+training.steps=3"
    assert name_of(optimizer__options__nesterov=True) == "mine+optimizer.nesterov=true"
    assert name_of(seed=3) == "mine"
    assert len(name_of(model__weights="a" * 200)) < 30
