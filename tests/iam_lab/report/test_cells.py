"""Which runs count in a cell, what is compared, what is flagged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.iam_lab.report.fake_runs import fake_run

from iam_lab.report.cells import Filled, fill
from iam_lab.report.evidence import gather


def test_a_mean_over_seeds_beside_the_paper(mixed_runs: Path) -> None:
    cell = fill(gather([mixed_runs]), "tab:1", "cifar10", "iam-d")
    assert cell.ours is not None
    assert cell.paper is not None
    assert cell.ours.mean.value == pytest.approx(3.4)
    assert cell.ours.mean.n == 3
    deviation = math.sqrt((0.2**2 + 0.1**2 + 0.3**2) / 2 / 3)
    assert cell.ours.mean.stderr == pytest.approx(deviation)
    assert cell.difference == (pytest.approx(3.4 - 3.28), pytest.approx(math.hypot(deviation, 0.06)))
    assert cell.ours.last is not None
    assert cell.ours.last.value == pytest.approx(3.5)
    assert cell.ours.selected is None


def test_other_epochs_stand_apart_and_are_not_compared(mixed_runs: Path) -> None:
    cell = fill(gather([mixed_runs]), "tab:1", "cifar10", "iam-d")
    assert [group.deviations for group in cell.groups] == ["", "training.epochs=24"]
    assert [group.comparable for group in cell.groups] == [True, False]


def both_lengths(root: Path, changed: dict[str, object] | None = None) -> Filled:
    """No seed-by-seed choice: the better of each seed has the mean 3.67, below both means."""
    for seed, (short, long) in enumerate(((4.0, 3.6), (3.8, 4.2), (3.6, 4.2))):
        fake_run(root, "tab1-cifar10-sgd", seed, error=short, changed=changed)
        fake_run(root, "tab1-cifar10-sgd-400", seed, error=long)
    return fill(gather([root]), "tab:1", "cifar10", "sgd")


def test_sgd_is_the_length_with_the_lower_mean(tmp_path: Path) -> None:
    cell = both_lengths(tmp_path)
    (group,) = cell.groups
    assert group is cell.ours
    assert str(group.mean) == "3.80 ± 0.12"
    assert str(group.last) == "3.90 ± 0.12"
    assert {run.name for run in group.runs} == {"tab1-cifar10-sgd"}
    assert group.note == "tab1-cifar10-sgd, the better mean; tab1-cifar10-sgd-400: 4.00 ± 0.20 (n = 3)"


def test_a_length_that_was_run_otherwise_is_not_weighed(tmp_path: Path) -> None:
    cell = both_lengths(tmp_path, changed={"training.precision": "bf16"})
    assert cell.ours is not None
    assert str(cell.ours.mean) == "4.00 ± 0.20"
    assert [group.deviations for group in cell.groups] == ["", "training.precision=bf16"]
    assert cell.flags == ["tab1-cifar10-sgd not run in the same way; the paper takes the better one"]


def test_top_1_and_top_5_of_a_row_are_of_the_same_runs(tmp_path: Path) -> None:
    fake_run(tmp_path, "imagnet-sgd", error=22.0, epochs=3)
    other = fake_run(tmp_path, "imagnet-full-sgd-400", error=23.0, epochs=3)
    text = other.summary_file.read_text(encoding="utf-8").replace("7.66", "1.66")  # a better top-5 error
    other.summary_file.write_text(text, encoding="utf-8")
    evidence = gather([tmp_path])
    for metric in ("top1_error", "top5_error"):
        ours = fill(evidence, "tab:imagnet", "imagenet", "sgd", "", metric).ours
        assert ours is not None
        assert [run.name for run in ours.runs] == ["imagnet-sgd"]


def test_one_length_alone_is_flagged(tmp_path: Path) -> None:
    fake_run(tmp_path, "tab1-cifar10-sgd", error=4.0)
    cell = fill(gather([tmp_path]), "tab:1", "cifar10", "sgd")
    assert any("tab1-cifar10-sgd-400 not run" in flag for flag in cell.flags)
    assert cell.ours is not None
    assert cell.ours.mean.stderr is None


def test_what_the_paper_leaves_open_is_compared_and_named(mixed_runs: Path) -> None:
    cell = fill(gather([mixed_runs]), "tab:1", "cifar10", "sam")
    assert cell.ours is not None
    assert cell.ours.deviations == "training.precision=bf16"
    assert cell.difference == (pytest.approx(3.3 - 3.31), None)


def test_an_unfinished_run_is_told_and_does_not_count(mixed_runs: Path) -> None:
    cell = fill(gather([mixed_runs]), "tab:1", "cifar100", "iam-s")
    assert cell.ours is None
    assert cell.unfinished == ["seed 0 unfinished after epoch 12, 17.10 so far"]


def test_a_cell_without_runs_still_has_the_papers_number() -> None:
    cell = fill(gather([]), "tab:1", "svhn", "iam-d")
    assert (cell.ours, cell.difference, str(cell.paper)) == (None, None, "3.13 ± 0.06")


def test_another_seed_counts_and_is_flagged(tmp_path: Path) -> None:
    fake_run(tmp_path, "tab1-svhn-sam", 7, error=3.5)
    cell = fill(gather([tmp_path]), "tab:1", "svhn", "sam")
    assert cell.ours is not None
    assert cell.ours.seeds == (7,)
    assert any("seed 7" in flag for flag in cell.flags)


def test_of_a_seed_run_twice_the_newest_counts(tmp_path: Path) -> None:
    fake_run(tmp_path / "first", "tab1-svhn-sam", 0, error=3.5, started="2001-01-01T00:00:00+00:00")
    fake_run(tmp_path / "second", "tab1-svhn-sam", 0, error=9.0)
    cell = fill(gather([tmp_path]), "tab:1", "svhn", "sam")
    assert cell.ours is not None
    assert (cell.ours.mean.value, cell.ours.mean.n) == (pytest.approx(3.5), 1)
    (flag,) = cell.flags
    assert "seed 0 was run twice" in flag
    assert str(tmp_path / "second") in flag


def test_a_finished_run_without_the_number_is_flagged(tmp_path: Path) -> None:
    folder = fake_run(tmp_path, "tab1-svhn-sam", epochs=2)
    folder.summary_file.write_text('{"last": {"epoch": 2}, "best": {"epoch": 1}}', encoding="utf-8")
    cell = fill(gather([tmp_path]), "tab:1", "svhn", "sam")
    assert cell.groups == []
    assert "best.test_error" in cell.flags[0]


def test_accuracy_is_a_hundred_minus_the_error(tmp_path: Path) -> None:
    fake_run(tmp_path, "imagnet-iam-d", error=21.0, epochs=3)
    evidence = gather([tmp_path])
    accuracy = fill(evidence, "fig:imagenet_efficiency", "imagenet", "iam-d", "epochs=200", "top1_accuracy")
    top5 = fill(evidence, "tab:imagnet", "imagenet", "iam-d", "", "top5_error")
    assert accuracy.ours is not None
    assert top5.ours is not None
    assert accuracy.ours.mean.value == pytest.approx(79.0)
    assert top5.ours.mean.value == pytest.approx(7.0)
