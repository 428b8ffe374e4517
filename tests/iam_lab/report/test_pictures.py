"""Which runs a picture is drawn from, and what it shows."""

from __future__ import annotations

from pathlib import Path

from tests.iam_lab.report.fake_runs import fake_run

from iam_lab.recipes import find_recipe, recipes_for
from iam_lab.report import page
from iam_lab.report.content import compose
from iam_lab.report.evidence import gather
from iam_lab.report.figures.heatmap import heatmap
from iam_lab.report.figures.lines import Curve, lines
from iam_lab.report.pictures.along import inconsistency_along_training
from iam_lab.report.pictures.efficiency import imagenet_efficiency, table_1_against_cost
from iam_lab.report.pictures.gap import measures_against_gap
from iam_lab.report.pictures.picture import drawn_from


def drawn(root: Path, name: str) -> tuple[list[tuple[int, float | None]], str]:
    """Seed and error of the runs that stand for a recipe in a curve, and what is said of them."""
    runs, told = drawn_from(gather([root]), find_recipe(name))
    return [(run.config.seed, run.value("best.test_error")) for run in runs], told


def test_the_cost_picture_shows_what_the_table_has(tmp_path: Path) -> None:
    for seed in range(3):
        fake_run(tmp_path, "tab1-cifar10-sam", seed, error=3.3)
        fake_run(tmp_path, "tab1-cifar10-sam", seed, error=20.0, changed={"objective.rho": 0.1 * (seed + 2)})
    panel = table_1_against_cost(gather([tmp_path])).panels[0]
    assert "Filled: ours, 3 runs." in panel.caption
    assert "objective.rho" not in panel.caption


def test_a_cost_picture_of_deviating_runs_says_so(tmp_path: Path) -> None:
    for seed in range(2):
        fake_run(tmp_path, "tab1-cifar10-sam", seed, error=3.3, changed={"objective.rho": 0.1})
    fake_run(tmp_path, "tab1-cifar10-sam", 0, error=20.0, changed={"objective.rho": 0.4})
    panel = table_1_against_cost(gather([tmp_path])).panels[0]
    assert "Filled: ours, 2 runs." in panel.caption
    assert "SAM: with objective.rho=0.1." in panel.caption


def test_a_curve_never_pools_what_deviates(tmp_path: Path) -> None:
    for seed in range(2):
        fake_run(tmp_path, "tab1-cifar10-iam-d", seed, error=3.3)
    fake_run(
        tmp_path, "tab1-cifar10-iam-d", 2, error=50.0, changed={"objective.options": {"start_norm": 3.0}}
    )
    assert drawn(tmp_path, "tab1-cifar10-iam-d") == ([(0, 3.3), (1, 3.3)], "")
    captions = [panel.caption for panel in inconsistency_along_training(gather([tmp_path])).panels]
    assert captions
    assert all("IAM-D: 2 runs" in caption for caption in captions)


def test_a_seed_that_was_run_twice_is_drawn_once(tmp_path: Path) -> None:
    fake_run(tmp_path / "old", "simclr-cifar10-sgd", error=12.0, epochs=4)
    fake_run(
        tmp_path / "new", "simclr-cifar10-sgd", error=13.0, epochs=4, started="2001-01-01T00:00:00+00:00"
    )
    runs, told = drawn(tmp_path, "simclr-cifar10-sgd")
    assert runs == [(0, 13.0)]
    assert "seed 0 was run twice" in told
    assert str(tmp_path / "old") in told


def test_finished_runs_go_before_unfinished_ones_and_comparable_ones_before_others(tmp_path: Path) -> None:
    name = "tab1-cifar10-sgd"
    fake_run(tmp_path, name, 0, error=9.0, changed={"training.epochs": 24})
    assert drawn(tmp_path, name) == ([(0, 9.0)], "with training.epochs=24")
    fake_run(tmp_path / "begun", name, 0, error=5.0, finished=False, epochs=7)
    assert drawn(tmp_path, name) == ([(0, 5.0)], "unfinished")
    fake_run(tmp_path, name, 1, error=4.0)
    assert drawn(tmp_path, name) == ([(1, 4.0)], "")


def test_the_scatter_is_of_runs_that_deviate_alike(tmp_path: Path) -> None:
    for index, recipe in enumerate(recipes_for("fig:measure_comparison")[::150]):
        found = {
            "s_rho": 0.1 + index,
            "trace_hessian": 5.0,
            "lambda_max_hessian": 1.0,
            "train_clean_error": 1.0,
        }
        fake_run(tmp_path, recipe.name, error=20.0, epochs=2, extra=found)
        other = {"training.precision": "bf16"} if index % 2 else {"training.epochs": 2}
        fake_run(tmp_path, recipe.name, error=50.0, epochs=2, extra=found, changed=other)
    captions = [panel.caption for panel in measures_against_gap(gather([tmp_path])).panels]
    assert captions
    assert not any("with" in caption for caption in captions)


def test_the_cost_axis_has_a_tick_for_the_dearest_point() -> None:
    (panel,) = imagenet_efficiency(gather([])).panels
    assert all(f">{tick}<" in panel.svg for tick in (100, 200, 400, 800, 1200))


def test_the_scatter_has_taus_of_both_networks(tmp_path: Path) -> None:
    for index, recipe in enumerate(recipes_for("fig:measure_comparison")[::150]):
        measured = {"s_rho": 0.1 + index, "trace_hessian": 5.0 - index, "lambda_max_hessian": 1.0 + index % 2}
        gap = {"train_clean_error": 15.0 - index}
        fake_run(tmp_path, recipe.name, error=20.0, epochs=2, extra={**measured, **gap})
    text = page.render(compose(gather([tmp_path])))
    assert "τ = 1.0000 from 4 runs; the paper has 0.3658." in text
    assert "τ = −1.0000 from 4 runs; the paper has −0.0439." in text


def test_grids_and_curves_are_drawn(tmp_path: Path) -> None:
    fake_run(tmp_path, "heatmap-cifar10-beta1-rho0.1", error=4.5, epochs=3)
    fake_run(tmp_path, "fig6-m16-rho0.05", error=3.9, epochs=3)
    fake_run(tmp_path, "iam-wrn28-cifar100-k2-m32", error=16.0, epochs=3)
    fake_run(tmp_path, "tab1-cifar10-sgd", error=4.0, epochs=12, finished=False)
    text = page.render(compose(gather([tmp_path])))
    assert "the least of all at β = 1, ρ = 0.1" in text
    assert "IAM-S on CIFAR-10, batches of 256" in text
    assert "K = 2: 1 run" in text
    assert "SGD: 1 run, unfinished" in text


def test_a_picture_says_in_words_what_it_shows() -> None:
    svg = lines(
        "name", [Curve("a & b", [1, 2], [3, 4], [None, None], "#000")], title="T", x_label="x", y_label="y"
    )
    assert 'role="img"' in svg
    assert 'aria-label="T: y over x. a &amp; b: 4 at 2"' in svg
    assert "<?xml" not in svg


def test_a_curve_of_one_point_is_seen() -> None:
    one = lines("one", [Curve("a", [3], [1], [None], "#123456")], title="T", x_label="x", y_label="y")
    assert "fill: #123456" in one.partition("legend")[0]


def test_an_empty_heatmap_and_one_of_equal_values_are_drawn() -> None:
    options = {"rows": (1.0,), "columns": (1.0, 2.0), "title": "T", "row_label": "r", "column_label": "c"}
    assert "0 of 2 cells" in heatmap("empty", {}, **options)  # type: ignore[arg-type]
    equal = {(1.0, 1.0): 3.0, (1.0, 2.0): 3.0}
    assert "Smallest 3.00" in heatmap("same", equal, **options)  # type: ignore[arg-type]


def test_simclr_is_drawn_and_what_is_missing_named(tmp_path: Path) -> None:
    for method in ("sgd", "iam-d"):
        fake_run(tmp_path, f"simclr-cifar10-{method}", error=12.0, epochs=10)
    sections = {section.label: section for section in compose(gather([tmp_path])).sections}
    shown, both = (sections[f"fig:self_supervised_{name}"].picture for name in ("eval", "total"))
    assert shown is not None
    assert both is not None
    assert [len(shown.panels), shown.done, shown.wanted] == [2, 2, 2]
    assert [both.done, both.wanted] == [2, 4]
    assert both.missing == ["SimCLR, SGD on CIFAR-100", "SimCLR, IAM-D on CIFAR-100"]
