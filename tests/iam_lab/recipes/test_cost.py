from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from iam_lab.data.catalogue import CATALOGUE
from iam_lab.models import build_model
from iam_lab.recipes import all_recipes, find_recipe
from iam_lab.recipes.cost import (
    FORWARD_FLOPS,
    equivalent_epochs,
    examples,
    step_image_passes,
    step_passes,
    training_flops,
)
from iam_lab.recipes.schema import Objective


@pytest.mark.parametrize("key", FORWARD_FLOPS, ids=str)
def test_forward_operations_are_those_that_the_counter_sees(key: tuple[str, bool, int, int]) -> None:
    name, extra_block, channels, size = key
    options = {"extra_block": True} if extra_block else {}
    with torch.device("meta"):  # shapes alone: no weights are drawn, nothing is computed
        classes = 1000 if name.startswith("timm:") and "16" not in name else 10
        model = build_model(name, classes=classes, channels=channels, image_size=size, **options).eval()
        image = torch.empty(1, channels, size, size)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(image)
    assert counter.get_total_flops() == FORWARD_FLOPS[key]


@pytest.mark.parametrize(
    ("objective", "passes"),
    [
        (Objective("plain"), 3),
        (Objective("sam", 0.05), 6),
        (Objective("asam", 0.5), 6),
        (Objective("iam-s", 0.1, steps=1), 7),
        (Objective("iam-s", 0.1, steps=3), 13),
        (Objective("iam-d", 0.1, 1.0, steps=1), 9),
        (Objective("iam-d", 0.1, 1.0, steps=5), 21),
        (Objective("iam-d", 0.1, 1.0, options={"start": "carry"}), 6),
        (Objective("iam-d", 0.1, 1.0, steps=1, options={"lean": True}), 10),
    ],
)
def test_passes_of_a_step(objective: Objective, passes: int) -> None:
    assert step_passes(objective) == passes


def test_iam_d_is_three_sgd_steps_and_not_two() -> None:
    sgd, iam_d = (find_recipe(f"tab1-cifar10-{method}").config for method in ("sgd", "iam-d"))
    assert (equivalent_epochs(sgd), equivalent_epochs(iam_d)) == (200.0, 600.0)
    assert training_flops(iam_d) == 3 * (training_flops(sgd) or 0.0)


def test_steps_count_where_they_are_given() -> None:
    assert examples(find_recipe("vit-cifar10-iamd-sgd").config) == 10_000 * 128


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("semi-cifar10-250-sgd", 3 * 128),
        ("semi-cifar10-250-iam-d", 9 * (128 + 384)),
        ("fix-match-cifar10-250-sgd", 3 * (64 + 448) + 3 * 448),
        ("fix-match-cifar10-250-iam-d", 9 * (64 + 448) + 3 * 448),
        ("simclr-cifar10-iam-d", 9 * 2 * 1024),
    ],
)
def test_passes_of_a_step_with_few_labels_or_none(name: str, passes: int) -> None:
    assert step_image_passes(find_recipe(name).config) == passes


def test_an_epoch_with_few_labels_is_one_of_the_images_without() -> None:
    config = find_recipe("semi-cifar10-250-iam-d").config
    assert examples(config) == 200 * ((50_000 - 250) // 384) * 128


def test_held_out_and_left_out_images_do_not_count() -> None:
    config = find_recipe("small-cifar10-sgd").config
    assert examples(config) == 10 * 5000
    held_out = find_recipe("heatmap-cifar10-beta1-rho0.1").config
    assert examples(held_out) == 200 * 45_000


def test_every_recipe_is_counted_and_an_unknown_model_is_not() -> None:
    assert all(training_flops(recipe.config) is not None for recipe in all_recipes())
    config = find_recipe("digits-sgd").config
    assert training_flops(replace(config, model=replace(config.model, name="timm:resnet18"))) is None


def test_data_sets_have_published_sizes() -> None:
    assert CATALOGUE["svhn"].sizes["train"] == 73_257
