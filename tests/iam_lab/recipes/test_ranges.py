"""Values that cannot be are refused before anything is begun, by name; those of every recipe can."""

from __future__ import annotations

import math
from typing import Any

import pytest

from iam_lab.errors import RecipeError
from iam_lab.recipes import all_recipes
from iam_lab.recipes.ranges import RULES, check_values
from iam_lab.recipes.schema import Config
from iam_lab.recipes.typed import field_types, updated

IAM_D = {"objective.name": "iam-d", "objective.rho": 0.1}


def test_the_recipes_of_this_project_may_be() -> None:
    for recipe in all_recipes():
        check_values(recipe.config)


def test_every_number_has_a_rule() -> None:
    free = {"seed", "semi.labels", "schedule.milestones"}  # any; by the classes there are; checked together
    numbers = {
        path for path, kind in field_types(Config).items() if "int" in str(kind) or "float" in str(kind)
    }
    assert {path for path in numbers - free if ".options" not in path} == set(RULES)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("training.clip_norm", -1.0, "a finite number above 0, found -1.0"),
        ("training.clip_norm", 0.0, "a finite number above 0"),
        ("training.label_smoothing", -0.5, "from 0 to 1, found -0.5"),
        ("training.label_smoothing", 2.0, "from 0 to 1"),
        ("training.steps_per_epoch", 0, "an integer of 1 or more"),
        ("training.steps_per_epoch", -3, "an integer of 1 or more"),
        ("training.patience", 0, "an integer of 1 or more"),
        ("schedule.warmup_steps", -5, "an integer of 0 or more"),
        ("schedule.final", -1.0, "a finite number of 0 or more"),
        ("schedule.gamma", math.nan, "a finite number of 0 or more, found nan"),
        (
            "schedule.milestones",
            (60.0, 120.0),
            r"rising shares .* found 60 120. For these .* of 200 write 0.3 0.6",
        ),
        ("schedule.milestones", (0.6, 0.3), "rising shares .* found 0.6 0.3.$"),
        ("schedule.milestones", (0.3, 0.3), "rising shares"),
        ("schedule.milestones", (0.0,), "rising shares"),
        ("schedule.milestones", (math.nan,), "rising shares"),
        ("optimizer.lr", math.nan, "a finite number of 0 or more"),
        ("evaluation.train_images", -5, "an integer of 0 or more, or -1 for all"),
        ("evaluation.every", 0, "an integer of 1 or more"),
        ("measurement.images", -3, "an integer of 1 or more, or -1 for all"),
        ("measurement.images", 0, "an integer of 1 or more, or -1 for all"),
        ("measurement.every", -1, "an integer of 0 or more"),
        ("measurement.rho", 0.0, "a finite number above 0"),
        ("measurement.steps", 0, "an integer of 1 or more"),
        ("measurement.restarts", 0, "an integer of 1 or more"),
        ("measurement.tolerance", -1.0, "a finite number above 0"),
        ("data.image_size", 0, "an integer of 1 or more"),
        ("objective.sub_batch", 7, "divide the batch of 128, found 7"),
        ("training.accumulate", 5, "divide the batch of 128, found 5"),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_named(path: str, value: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=f"^{path} must .*{message}"):
        check_values(updated(Config(), {path: value}))


@pytest.mark.parametrize(
    "changes",
    [
        {"training.label_smoothing": 1.0, "training.clip_norm": 0.1},
        {"schedule.milestones": ()},
        {"measurement.images": -1, "evaluation.train_images": -1, "measurement.every": 0},
        {"training.accumulate": 2, "objective.sub_batch": 32, **IAM_D},
        {"probe.lr": -1.0},  # which nothing but SimCLR looks at
    ],
    ids=str,
)
def test_what_may_be(changes: dict[str, Any]) -> None:
    check_values(updated(Config(), changes))


@pytest.mark.parametrize("weight", [math.nan, math.inf, -1.0])
def test_what_a_task_looks_at_is_checked_there(weight: float) -> None:
    with pytest.raises(RecipeError, match=r"fixmatch\.weight must be"):
        check_values(updated(Config(), {"task": "fixmatch", "fixmatch.weight": weight}))


def test_a_part_of_a_batch_is_what_sub_batches_divide() -> None:
    changes = {"training.accumulate": 4, "objective.sub_batch": 64, **IAM_D}
    with pytest.raises(
        RecipeError, match=r"the batch of 32, training.batch_size / training.accumulate, found 64"
    ):
        check_values(updated(Config(), changes))


def test_what_is_measured_must_be_there() -> None:
    measured = {"measurement.every": 1, "measurement.split": "validation"}
    with pytest.raises(RecipeError, match="There are no validation images"):
        check_values(updated(Config(), measured))
    check_values(updated(Config(), measured | {"data.validation": 0.1}))
