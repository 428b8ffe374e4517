from __future__ import annotations

import subprocess
import sys

import pytest

from iam_lab.cli import main


def test_the_list_has_every_family_and_folds_grids(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    shown = capsys.readouterr().out
    assert "tab1-cifar10-iam-d" in shown
    assert "3.28 ± 0.06" in shown
    assert "heatmap-...  50 recipes" in shown
    assert "heatmap-cifar10-beta1-rho0.1" not in shown
    assert max(map(len, shown.splitlines())) < 160


def test_a_pattern_unfolds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "heatmap-cifar10"]) == 0
    assert capsys.readouterr().out.count("heatmap-cifar10-beta") == 25


def test_a_label_lists_what_fills_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "tab:imagnet"]) == 0
    shown = capsys.readouterr().out
    assert "imagnet-iam-d" in shown
    assert "imagnet-full-iam-d-100" not in shown
    assert "22.80 ± 0.23" in shown  # 400 epochs of SGD have a number of their own


def test_an_accuracy_is_not_taken_for_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "imagnet-full-sgd-*"]) == 0
    assert "76.88 accuracy" in capsys.readouterr().out


def test_one_recipe_shows_every_field_and_marks_what_is_unstated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "tab1-cifar10-asam"]) == 0
    lines = capsys.readouterr().out.splitlines()
    eta = next(line for line in lines if "objective.eta" in line)
    assert "0.01" in eta
    assert "? the paper gives none" in eta
    weight_decay = next(line for line in lines if "optimizer.weight_decay" in line)
    assert "?" not in weight_decay
    assert any("error 3.15 ± 0.02, n = 3" in line for line in lines)


def test_an_unknown_name_is_an_error_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "tab1-cifar10-sdg"]) == 1
    assert "Did you mean tab1-cifar10-sgd" in capsys.readouterr().err


def test_listing_needs_no_torch() -> None:
    program = "import sys; from iam_lab.cli import main; main(['recipes']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0
