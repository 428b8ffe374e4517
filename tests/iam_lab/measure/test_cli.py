"""iam measure: every kind of target, its numbers against the library's, its errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.iam_lab.train.configs import tiny_simclr

import torch_iam as iam
from iam_lab.cli import main
from iam_lab.data import spec_of
from iam_lab.measure import quantities
from iam_lab.measure.cli import batches_for
from iam_lab.measure.quantities import MEASURES, Found
from iam_lab.measure.request import Request
from iam_lab.measure.targets import find_target, run_config
from iam_lab.models import build_model
from iam_lab.runs.checkpoint import save_weights
from iam_lab.runs.folder import RunFolder
from iam_lab.train.run import train

QUICK = ["--images", "40", "--restarts", "2"]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "net.safetensors"
    save_weights(path, build_model("mlp", classes=10, channels=1, image_size=8).state_dict(), {})
    return path


def test_a_file_of_weights(weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.json"
    call = ["measure", str(weights), "--model", "mlp", "--data", "digits", "--out", str(out), *QUICK]
    assert main([*call, "--measures", ",".join(MEASURES), "--rho", "0.3"]) == 0
    shown = capsys.readouterr().out
    content = json.loads(out.read_text())
    rows = {row["name"]: row for row in content["rows"]}
    assert list(rows) == ["error %", "S(0.3)", "lambda_max(F)", "Tr(F)", "lambda_max(H)", "Tr(H)"]
    assert all(name in shown for name in rows)
    assert content["environment"]["versions"]["torch"]

    spec = spec_of("digits")
    target = find_target(str(weights), spec, model="mlp")
    batches = batches_for(target, spec, Request(str(weights), images=40), torch.device("cpu"))
    expected = iam.local_inconsistency(target.model, batches, 0.3, steps=3, restarts=2)
    assert rows["S(0.3)"]["value"] == pytest.approx(expected.value, rel=1e-6)
    assert rows["S(0.3)"]["error"] == pytest.approx(expected.stderr, rel=1e-6)
    assert rows["lambda_max(F)"]["value"] == pytest.approx(
        float(iam.fisher_lambda_max(target.model, batches)), rel=1e-6
    )


def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits-sgd", "--training.epochs", "1", "--measurement.every", "0"]) == 0
    (run,) = Path("runs").glob("*/seed0")
    assert main(["measure", str(run), "--measures", "error,s", *QUICK]) == 0
    assert "of digits/test" in capsys.readouterr().out


@pytest.fixture(scope="module")
def contrastive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of SimCLR whose divergence is not the default one."""
    path = tmp_path_factory.mktemp("runs") / "run"
    config = tiny_simclr(training__epochs=2, measurement__every=0, simclr__temperature=0.3)
    train(RunFolder(path), config, device="cpu")
    return path


@pytest.mark.parametrize("axis", ["similarity", "projection"])
def test_what_simclr_has_learned_is_measured_by_its_own_divergence(
    axis: Any, contrastive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(contrastive, run)
    header = json.loads((run / "config.json").read_text())
    header["config"]["simclr"]["axis"] = axis
    (run / "config.json").write_text(json.dumps(header))
    out = tmp_path / "found.json"
    assert main(["measure", str(run), "--out", str(out), *QUICK, "--batch-size", "25"]) == 0
    content = json.loads(out.read_text())
    rows = {row["name"]: row["value"] for row in content["rows"]}
    assert list(rows) == ["S(0.1)", "lambda_max(F)"]  # by default
    assert content["request"]["measures"] == "s,fisher"
    assert main(["measure", str(run), "--measures", "fisher-trace", "--out", str(out), *QUICK]) == 0
    (trace,) = json.loads(out.read_text())["rows"]

    spec, divergence = spec_of("digits"), iam.SimilarityKL(0.3, axis)
    target = find_target(str(run), spec, config=run_config(str(run)))
    assert target.divergence == divergence
    request = Request(str(run), images=40, batch_size=25)
    batches = batches_for(target, spec, request, torch.device("cpu"))
    expected = iam.local_inconsistency(target.model, batches, 0.1, restarts=2, divergence=divergence)
    assert rows["S(0.1)"] == pytest.approx(expected.value, rel=1e-6)
    top = iam.fisher_lambda_max(target.model, batches, divergence=divergence)
    assert rows["lambda_max(F)"] == pytest.approx(float(top), rel=1e-6)
    whole = [(torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches]))]
    total = iam.fisher_trace(target.model, whole, tolerance=0.02, divergence=divergence)
    assert trace["value"] == pytest.approx(total.value, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--measures", "s,error"], "--measures error needs the logits of classes"),
        (["--measures", "hessian"], "--measures hessian needs the logits of classes"),
        (["--measures", "hessian-trace"], "Choose from s, fisher, fisher-trace"),
        (["--images", "41", "--batch-size", "40"], "leaves one of 41 images to a pass of its own"),
    ],
)
def test_what_cannot_be_measured_of_simclr(
    arguments: list[str], message: str, contrastive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["measure", str(contrastive), *arguments]) == 1
    assert message in capsys.readouterr().err


def test_a_timm_model_sees_its_own_size_and_channels(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("timm")
    call = ["measure", "timm:test_resnet", "--no-pretrained", "--data", "digits", "--measures", "error,s"]
    assert main([*call, "--images", "4", "--restarts", "1"]) == 0
    assert "timm:test_resnet (untrained), 4 images" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{weights}", "--data", "digits"], "say of which model with --model"),
        (["{weights}", "--data", "digits", "--model", "6cnn"], "does not fit the model"),
        (["{weights}", "--model", "mlp"], "Say on which images with --data"),
        (["{weights}", "--model", "mlp", "--data", "digits", "--measures", "q"], "--measures takes any of"),
        (["{weights}", "--model", "mlp", "--data", "digit"], "digits"),
        (["timm:no_such_model", "--data", "digits"], "timm:no_such_model cannot be made"),
        (["missing.pt", "--model", "mlp", "--data", "digits"], "There is no file missing.pt"),
    ],
)
def test_errors(
    weights: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [argument.replace("{weights}", str(weights)) for argument in arguments]
    assert main(["measure", *filled]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rho", "-1"], "--rho is a finite number above 0, found -1"),
        (["--rho", "nan"], "--rho is a finite number above 0, found nan"),
        (["--steps", "0"], "--steps is at least 1, found 0"),
        (["--restarts", "0"], "--restarts is at least 1, found 0"),
        (["--tolerance", "-1"], "--tolerance is a finite number above 0, found -1"),
        (["--trace-tolerance", "0"], "--trace-tolerance is a finite number above 0, found 0"),
        (["--max-matvecs", "1"], "--max-matvecs is at least 2, found 1"),
        (["--batch-size", "0"], "--batch-size is at least 1, found 0"),
        (["--images", "0"], "--images is at least 1, or -1 for all, found 0"),
        (["--images", "-5"], "--images is at least 1, or -1 for all, found -5"),
        (["--seed", str(2**63)], "--seed has at most 63 bits"),
        (["--device", "abacus"], "There is no device 'abacus' here"),
        (["--split", "validation"], "digits has no split 'validation'"),
    ],
)
def test_numbers_that_cannot_be(
    weights: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["measure", str(weights), "--model", "mlp", "--data", "digits", *arguments]) == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert message in told


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu(weights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", str(weights), "--model", "mlp", "--data", "digits", "--device", "cuda"]) == 1
    assert "There is no device 'cuda' here" in capsys.readouterr().err


def test_labels_of_other_classes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm")
    create = __import__("timm").create_model
    monkeypatch.setattr("timm.create_model", lambda name, **_: create(name, num_classes=2))  # of others' data
    call = ["measure", "timm:test_resnet", "--data", "digits", "--images", "4", "--restarts", "1"]
    assert main([*call, "--measures", "error,s,hessian-trace"]) == 1
    told = capsys.readouterr().err
    assert "--measures error,hessian-trace needs the logits of classes" in told
    assert "the model has 2 classes, digits has 10. Choose from s, fisher, fisher-trace." in told
    assert main(call) == 0
    shown = capsys.readouterr().out
    assert "without error, hessian: the model has 2 classes" in shown
    assert "S(0.1)" in shown
    assert "lambda_max(F)" in shown


def test_what_the_file_says(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits-sgd", "--training.epochs", "1", "--measurement.every", "0"]) == 0
    (run,) = Path("runs").glob("*/seed0")
    out = Path("some/new/folder/found.json")
    assert main(["measure", str(run), "--measures", "s,fisher", "--out", str(out), *QUICK]) == 0
    content = json.loads(out.read_text())
    assert content["request"]["data"] == "digits"
    assert content["complete"]
    assert content["model"]["described"] == f"mlp of {run} (best.safetensors)"
    assert content["model"]["class"] == "MLP"
    assert content["model"]["images"] == [1, 8, 8]
    s, fisher = content["rows"]
    assert (s["converged"], s["products"]) == (None, None)
    assert fisher["converged"]
    assert fisher["products"] >= 5


@pytest.mark.parametrize(
    ("out", "message"), [("", "is a folder"), ("net.safetensors/found.json", "cannot be made")]
)
def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    out: str, message: str, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["measure", str(weights), "--model", "mlp", "--data", "digits", "--out", str(tmp_path / out)]
    assert main([*call, *QUICK]) == 1
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


def test_an_interrupt_keeps_what_is_done(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> Found:
        raise KeyboardInterrupt

    monkeypatch.setitem(quantities.MEASURES, "fisher", interrupt)
    out = tmp_path / "found.json"
    call = ["measure", str(weights), "--model", "mlp", "--data", "digits", "--out", str(out), *QUICK]
    assert main([*call, "--measures", "error,s,fisher,hessian"]) == 130
    content = json.loads(out.read_text())
    assert [row["name"] for row in content["rows"]] == ["error %", "S(0.1)"]
    assert not content["complete"]


def test_products_may_be_more_or_fewer(
    weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    call = ["measure", str(weights), "--model", "mlp", "--data", "digits", "--out", str(out), *QUICK]
    wanted = "fisher,fisher-trace,hessian,hessian-trace"
    small = ["--tolerance", "1e-9", "--trace-tolerance", "1e-9", "--max-matvecs", "6"]
    assert main([*call, "--measures", wanted, *small]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [row["products"] for row in rows] == [6] * 4
    assert not any(row["converged"] for row in rows)
    assert "tolerance not met in 6 products: allow more with --max-matvecs" in capsys.readouterr().out


def test_the_librarys_complaint_is_a_line(weights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = build_model("mlp", classes=10, channels=1, image_size=8).state_dict()
    save_weights(weights, {name: tensor * float("nan") for name, tensor in broken.items()}, {})
    assert main(["measure", str(weights), "--model", "mlp", "--data", "digits", "--measures", "s"]) == 1
    assert "s: The model answers batch 0 with NaN at its own weights" in capsys.readouterr().err
