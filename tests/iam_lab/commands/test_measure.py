"""iam measure: every kind of target, its numbers against the library's, its errors."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.iam_lab.train.configs import tiny_simclr

import torch_iam as iam
from iam_lab.cli import main
from iam_lab.commands.measure import MEASURES, Request, batches_for
from iam_lab.commands.targets import Target, find_target, run_config
from iam_lab.data import spec_of
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


def test_a_transformers_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
        num_labels=10,
    )
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path)
    capsys.readouterr()
    assert main(["measure", str(tmp_path), "--data", "digits", "--measures", "s,fisher", *QUICK]) == 0
    assert "lambda_max(F)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{weights}", "--data", "digits"], "say of which model with --model"),
        (["{weights}", "--data", "digits", "--model", "6cnn"], "does not fit the model"),
        (["{weights}", "--model", "mlp"], "Say on which images with --data"),
        (["{weights}", "--model", "mlp", "--data", "digits", "--measures", "q"], "--measures takes any of"),
        (["{weights}", "--model", "mlp", "--data", "digit"], "digits"),
        (["{weights}", "--model", "mlp", "--data", "digits", "--batch-size", "0"], "found 0 and 1000"),
        (["{weights}", "--model", "mlp", "--data", "digits", "--images", "0"], "found 250 and 0"),
        (["timm:no_such_model", "--data", "digits"], "timm:no_such_model cannot be made"),
    ],
)
def test_errors(
    weights: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [argument.replace("{weights}", str(weights)) for argument in arguments]
    assert main(["measure", *filled]) == 1
    assert message in capsys.readouterr().err


def test_an_unknown_name_is_looked_for_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text("{}")
    assert os.path.isdir(tmp_path)
    assert main(["measure", str(tmp_path), "--data", "digits"]) == 1
    assert "no image classifier of Transformers" in capsys.readouterr().err


def test_grey_images_are_expanded_for_colour_models() -> None:
    spec = spec_of("digits")
    target = Target(torch.nn.Identity(), "", image_size=16, mean=(0.5,) * 3, std=(0.5,) * 3)
    ((images, labels),) = batches_for(target, spec, Request("", images=3), torch.device("cpu"))
    assert images.shape == (3, 3, 16, 16)
    assert labels.shape == (3,)
