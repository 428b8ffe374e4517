"""Recipes: complete, unique, and with the values of the paper's appendix, typed here by hand."""

from __future__ import annotations

import pytest
import torch

from iam_lab.data.augment.named import PIPELINES
from iam_lab.data.catalogue import CATALOGUE
from iam_lab.errors import RecipeError
from iam_lab.recipes import all_recipes, find_recipe, matching, recipes_for
from iam_lab.recipes.paper import PLACES, all_numbers
from iam_lab.recipes.schema import Config, Recipe
from iam_lab.recipes.typed import changes, from_plain, to_plain
from iam_lab.train.objectives import build_objective
from iam_lab.train.optimizers import build_optimizer
from iam_lab.train.schedule import build_rates
from iam_lab.train.streamed import STREAMED

RECIPES = {recipe.name: recipe for recipe in all_recipes()}


def values(name: str, *paths: str) -> tuple[object, ...]:
    found: list[object] = []
    for path in paths:
        value: object = RECIPES[name].config
        for part in path.split("."):
            value = getattr(value, part)
        found.append(value)
    return tuple(found)


def test_names_are_unique() -> None:
    assert len(RECIPES) == len(list(all_recipes()))


@pytest.mark.parametrize("label", PLACES)
def test_every_place_of_the_paper_has_recipes(label: str) -> None:
    assert recipes_for(label)


def test_every_number_of_the_paper_is_filled_by_a_recipe() -> None:
    filled = {cell.paper for recipe in RECIPES.values() for cell in recipe.cells}
    times = {"seconds_per_epoch", "relative_time"}
    wanted = {n for n in all_numbers() if n.metric not in times}
    assert wanted <= filled


def test_cells_of_tables_name_numbers_that_exist() -> None:
    for recipe in RECIPES.values():
        for cell in recipe.cells:
            assert (cell.paper is None) == PLACES[cell.label].plotted, (recipe.name, cell)


@pytest.mark.parametrize(
    ("name", "model", "lr", "beta", "rho"),
    [
        ("tab1-cifar10-iam-d", "wrn-16-8", 0.1, 1.0, 0.1),
        ("tab1-cifar100-iam-d", "wrn-16-8", 0.1, 10.0, 0.1),
        ("tab1-cifar10-iam-s", "wrn-16-8", 0.1, None, 0.1),
        ("tab1-cifar100-iam-s", "wrn-16-8", 0.1, None, 0.5),
        ("tab1-cifar10-sam", "wrn-16-8", 0.1, None, 0.05),
        ("tab1-cifar100-asam", "wrn-16-8", 0.1, None, 1.0),
        ("tab1-fashion-mnist-iam-d", "wrn-28-10", 0.1, 1.0, 0.1),
        ("tab1-svhn-sgd", "wrn-28-10", 0.01, None, None),
    ],
)
def test_table_1(name: str, model: str, lr: float, beta: float | None, rho: float | None) -> None:
    fields = ("model.name", "optimizer.lr", "objective.beta", "objective.rho")
    assert values(name, *fields) == (model, lr, beta, rho)
    shared = ("optimizer.weight_decay", "training.batch_size", "training.label_smoothing", "training.epochs")
    assert values(name, *shared) == (5e-4, 128, 0.1, 200)
    assert values(name, "schedule.name", "schedule.milestones", "schedule.gamma") == (
        "multistep",
        (60 / 200, 120 / 200, 160 / 200),
        0.2,
    )
    assert RECIPES[name].seeds == 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("imagnet-iam-s", ("timm:resnet50", 0.2, 0.2, 1024, 200, "cosine", 0)),
        ("imagnet-full-sam-400", ("timm:resnet50", 0.2, 0.05, 1024, 400, "cosine", 0)),
        ("imagnet-vits-iam-d", ("timm:vit_small_patch32_224", 0.0075, 0.1, 1024, 300, "linear", 40_000)),
        ("cifar-comparison-cifar100-iam-s", ("vit-tiny-4", 0.003, 0.5, 128, 200, "linear", 3000)),
        ("cifar-comparison-mlpmixer-cifar10-adamw", ("mixer-tiny-4", 0.003, None, 128, 200, "linear", 3000)),
        ("fig6-m16-rho0.05", ("wrn-16-8", 0.1, 0.05, 256, 200, "multistep", 0)),
    ],
)
def test_settings_of_the_other_tables(name: str, expected: tuple[object, ...]) -> None:
    paths = ("model.name", "optimizer.lr", "objective.rho", "training.batch_size", "training.epochs")
    assert values(name, *paths, "schedule.name", "schedule.warmup_steps") == expected


def test_fine_tuning_counts_steps() -> None:
    paths = ("training.steps", "training.clip_norm", "optimizer.lr", "data.image_size", "objective.rho")
    assert values("vit-cifar10-iamd-iam-d", *paths) == (10_000, 1.0, 0.01, 224, 0.1)


@pytest.mark.parametrize(
    ("name", "model", "beta", "rho", "labels"),
    [
        ("semi-cifar10-250-iam-d", "wrn-16-8", 1.0, 0.1, 250),
        ("semi-cifar100-10000-iam-d", "wrn-16-8", 10.0, 0.1, 10_000),
        ("semi-cifar10-4000-sam", "wrn-16-8", None, 0.1, 4000),
        ("fix-match-cifar10-250-iam-d", "wrn-28-2", 1.0, 0.01, 250),
        ("fix-match-cifar100-2500-iam-d", "wrn-28-8", 1.0, 0.05, 2500),
    ],
)
def test_few_labels(name: str, model: str, beta: float | None, rho: float, labels: int) -> None:
    fields = ("model.name", "objective.beta", "objective.rho", "semi.labels", "optimizer.weight_decay")
    assert values(name, *fields) == (model, beta, rho, labels, 5e-4)
    assert ("ours is the minimum over epochs" in RECIPES[name].note) == name.startswith("fix-match")


@pytest.mark.parametrize(
    "name", ["semi-cifar10-250-iam-d", "semi-cifar100-2500-sgd", "semi-cifar10-4000-sam"]
)
def test_few_labels_train_as_the_main_experiments_at_a_constant_rate(name: str) -> None:
    fields = ("optimizer.lr", "schedule.name", "training.label_smoothing", "training.batch_size")
    assert values(name, *fields, "semi.batch_size") == (0.1, "constant", 0.1, 128, 384)


def test_fixmatch_is_as_published_and_as_released() -> None:
    shared = ("training.steps", "training.batch_size", "semi.batch_size", "optimizer.lr")
    fields = ("semi.include_labelled", "schedule.name", "fixmatch.strong", "fixmatch.mean_over")
    name = "fix-match-cifar10-250-iam-d"
    assert values(name, *shared, "training.ema") == (2**20, 64, 448, 0.03, 0.99)
    assert values(name, *fields) == (True, "cosine-7-16", "fixmatch-strong", "all")
    assert values(name, "fixmatch.threshold", "fixmatch.weight") == (0.95, 1.0)
    decay = ("optimizer.weight_decay", "optimizer.decay_norms_and_biases", "optimizer.options")
    assert values(name, *decay) == (5e-4, False, {"momentum": 0.9, "nesterov": True})
    assert values(name, "training.label_smoothing", "model.options") == (0.0, {})
    assert values(f"{name}-released", *decay) == (1e-3, True, {"momentum": 0.9})
    assert values(f"{name}-released", "model.options") == ({"extra_block": True},)
    assert values(f"{name}-released", *shared, "training.ema") == (2**20, 64, 448, 0.03, 0.999)
    assert values(f"{name}-released", *fields) == (False, "cosine", "released-strong", "chosen")
    assert RECIPES[f"{name}-released"].config.objective.options == {"start_norm": 3.0}
    assert values(f"{name}-released", "fixmatch.halve_rho_after") == (460_800,)


def test_simclr() -> None:
    fields = (
        "model.name",
        "optimizer.lr",
        "optimizer.weight_decay",
        "training.batch_size",
        "training.epochs",
    )
    assert values("simclr-cifar10-iam-d", *fields) == ("resnet18-cifar", 1.0, 1e-4, 1024, 200)
    warmup = ("schedule.name", "schedule.warmup_steps", "evaluation.every", "probe.epochs")
    assert values("simclr-cifar100-sgd", *warmup) == ("cosine", 10 * 48, 5, 20)
    assert values("simclr-cifar10-iam-d", "simclr.projector", "simclr.temperature") == ((512, 128), 0.5)
    objective = ("objective.beta", "objective.rho", "objective.options")
    assert values("simclr-cifar100-iam-d", *objective) == (1.0, 0.1, {"start_norm": 3.0})
    others = ("optimizer.options", "data.augment", "training.label_smoothing")
    assert values("simclr-cifar10-sgd", *others) == ({"momentum": 0.9}, "simclr", 0.0)


def test_grids_have_the_sizes_of_the_paper() -> None:
    def runs(part: str) -> int:
        return sum(recipe.seeds for recipe in matching(part))

    assert runs("measure-comparison-6cnn") == 600
    assert runs("measure-comparison-wrn28-2") == 540
    assert len(matching("heatmap-cifar10-")) == 25
    assert len(matching("fig6-")) == 28
    assert len(recipes_for("tab:iam_wrn28", "cifar100")) == 12


def test_the_validation_split_is_a_tenth_where_the_paper_has_one() -> None:
    held_out = {name for name, recipe in RECIPES.items() if recipe.config.data.validation}
    ours = {name for name in held_out if name.startswith(("digits", "small", "few-labels"))}
    assert all(name.startswith(("heatmap", "measure-comparison")) for name in held_out - ours)
    assert {RECIPES[name].config.data.validation for name in held_out - ours} == {0.1}
    assert not any(RECIPES[name].cells for name in ours)


def test_released_variants_fill_no_cell() -> None:
    variant = RECIPES["tab1-cifar10-iam-d-released"]
    assert variant.cells == ()
    assert variant.config.model.options["extra_block"] is True
    assert variant.config.objective.options == {"start_norm": 0.05, "detach_reference": True}


def test_released_variants_mark_nothing_that_the_released_code_says() -> None:
    base, variant = RECIPES["fix-match-cifar10-250-iam-d"], RECIPES["fix-match-cifar10-250-iam-d-released"]
    said = {
        "optimizer.options.nesterov",
        "optimizer.decay_norms_and_biases",
        "schedule.name",
        "semi.include_labelled",
        "fixmatch.strong",
        "fixmatch.mean_over",
        "objective.options.start_norm",
    }
    assert set(base.unstated) - set(variant.unstated) == said
    assert "script's default is 0.05" in variant.note
    assert "three batches of BatchNorm there, with a fourth" in variant.note
    assert "as do the passes at the random start and at the perturbed weights" in variant.note
    for recipe in RECIPES.values():
        if recipe.name.endswith("-released"):
            differing = changes(RECIPES[recipe.name.removesuffix("-released")].config, recipe.config)
            assert not set(recipe.unstated) & set(differing), recipe.name


def test_the_shortened_fixmatch_differs_in_its_schedule_and_its_arithmetic() -> None:
    for method in ("sgd", "sam", "iam-d"):
        base, short = (
            RECIPES[f"fix-match-cifar10-250-{method}"],
            RECIPES[f"fix-match-short-cifar10-250-{method}"],
        )
        assert changes(base.config, short.config) == {
            "training.steps": 2**14,
            "training.precision": "bf16",
            "training.channels_last": True,
            "training.compile": True,
            "training.cuda_graph": True,
        }
        assert short.cells == ()
        assert "16,384 steps instead of the paper's 1,048,576" in short.note
        assert "training.precision" not in short.unstated


@pytest.mark.parametrize("field", ["objective.rho", "objective.eta"])
def test_what_the_paper_leaves_out_is_marked(field: str) -> None:
    assert field in RECIPES["tab1-cifar10-asam"].unstated
    assert "objective.rho" not in RECIPES["tab1-cifar10-iam-d"].unstated
    assert "objective.beta" in RECIPES["tab1-svhn-iam-d"].unstated


@pytest.mark.parametrize("name", ["fix-match-cifar10-250-sgd", "fix-match-short-cifar10-250-iam-d"])
def test_what_fixmatch_takes_from_its_own_paper_is_marked(name: str) -> None:
    """The paper says 'the reported FixMatch settings' and 'cosine'."""
    recipe = RECIPES[name]
    taken = ("schedule.name", "data.augment", "semi.include_labelled", "fixmatch.strong")
    for field in (*taken, "fixmatch.threshold", "fixmatch.weight", "fixmatch.mean_over"):
        assert "as in the published FixMatch" in recipe.unstated[field], field


def test_where_the_networks_differ_is_noted() -> None:
    assert (
        "leaky ReLU of slope 0.1 and BatchNorm of momentum 0.999" in RECIPES["fix-match-cifar10-250-sgd"].note
    )


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("tab1-cifar10-iam-d", "released code: 0.05"),
        ("fix-match-cifar10-250-iam-d", "released semi-supervised script: 3.0"),
        ("fix-match-short-cifar10-250-iam-d", "released semi-supervised script: 3.0"),
        ("semi-cifar10-250-iam-d", "released: the loss alone, no script that sets one"),
    ],
)
def test_the_start_is_compared_with_the_script_of_its_own_experiment(name: str, there: str) -> None:
    assert f"({there})" in RECIPES[name].unstated["objective.options.start_norm"]


def test_notes_of_data_sets() -> None:
    assert all("Images stay 28 x 28." in RECIPES[f"tab1-fashion-mnist-{m}"].note for m in ("sgd", "iam-d"))
    assert "better of 200 and 400 epochs" in RECIPES["tab1-fashion-mnist-sgd-400"].note
    assert "by ImageNet's mean and deviation" in RECIPES["tab1-svhn-sam"].note
    assert RECIPES["tab1-cifar10-sam"].note == ""


def test_few_labels_of_digits_are_not_tuned() -> None:
    for name, recipe in RECIPES.items():
        if name.startswith("few-labels-"):
            assert ("not tuned" in recipe.note) == (recipe.config.objective.rho is not None), name
            assert "chosen" not in recipe.note


def test_what_simclr_compares_is_marked() -> None:
    assert "the released loss compares" in RECIPES["simclr-cifar10-iam-d"].unstated["simclr.axis"]
    assert "simclr.axis" not in RECIPES["simclr-cifar10-sgd"].unstated  # which compares nothing


def test_sub_batches_divide_the_batch() -> None:
    for recipe in RECIPES.values():
        if recipe.config.objective.sub_batch is not None:
            assert recipe.config.training.batch_size % recipe.config.objective.sub_batch == 0


def test_every_config_survives_being_written_and_read() -> None:
    for recipe in RECIPES.values():
        assert from_plain(Config, to_plain(recipe.config)) == recipe.config


def test_data_sets_are_of_the_catalogue() -> None:
    assert {recipe.config.data.name for recipe in RECIPES.values()} <= set(CATALOGUE)


def test_a_wrong_name_is_answered_with_close_ones() -> None:
    with pytest.raises(RecipeError, match="Did you mean tab1-svhn-iam-d"):
        find_recipe("tab1-svhn-iamd")


def test_an_unstated_field_must_exist() -> None:
    with pytest.raises(RecipeError, match="no field of a config"):
        Recipe("mine", Config(), unstated={"optimizer.rate": "a guess"})


def test_every_recipe_can_be_built() -> None:
    distinct = {
        (
            repr(to_plain(config.objective)),
            repr(to_plain(config.optimizer)),
            repr(to_plain(config.schedule)),
        ): config
        for config in (recipe.config for recipe in RECIPES.values())
    }
    for config in distinct.values():
        model = torch.nn.Linear(2, 3)
        build_objective(model, config.objective, seed=0)
        optimizer = build_optimizer(model, config.optimizer, config.training)
        build_rates(config.schedule, optimizer, steps=100_000, steps_per_epoch=100).set(0)


def test_augmentations_exist() -> None:
    for recipe in RECIPES.values():
        streamed = CATALOGUE[recipe.config.data.name].streamed
        assert recipe.config.data.augment in ((STREAMED,) if streamed else PIPELINES)
