"""Weights in every kind of file: what is put around them comes off, code does not run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.iam_lab.train.configs import tiny
from torch import Tensor, nn

from iam_lab.cli import main
from iam_lab.models import build_model
from iam_lab.runs.checkpoint import save_weights
from iam_lab.runs.folder import RunFolder
from iam_lab.train.run import train

State = dict[str, Tensor]
CALL = ["--model", "mlp", "--data", "digits", "--images", "40", "--measures", "s", "--restarts", "1"]


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return build_model("mlp", classes=10, channels=1, image_size=8)


def _s(target: Path, out: Path, *arguments: str) -> float:
    assert main(["measure", str(target), *arguments, "--out", str(out)]) == 0
    (row,) = json.loads(out.read_text())["rows"]
    return float(row["value"])


def _prefixed(prefix: str) -> Callable[[State], State]:
    return lambda state: {prefix + name: tensor for name, tensor in state.items()}


@pytest.mark.parametrize("suffix", ["pt", "pth", "bin", "ckpt", "pth.tar"])
@pytest.mark.parametrize(
    "wrapped",
    [
        dict,
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state, "optimizer": {"state": {}}},
        lambda state: {"model_state_dict": state},
        lambda state: {"model": {"state_dict": _prefixed("module.")(state)}},
        _prefixed("module._orig_mod."),
        lambda state: {"state_dict": _prefixed("model.")(state)},
        lambda state: _prefixed("module.")(state) | {"n_averaged": torch.tensor(5)},
    ],
)
def test_a_checkpoint_of_torch(
    wrapped: Callable[[State], Any], suffix: str, network: nn.Module, tmp_path: Path
) -> None:
    save_weights(tmp_path / "own.safetensors", network.state_dict(), {})
    torch.save(wrapped(network.state_dict()), tmp_path / f"own.{suffix}")
    expected = _s(tmp_path / "own.safetensors", tmp_path / "one.json", *CALL)
    assert _s(tmp_path / f"own.{suffix}", tmp_path / "two.json", *CALL) == expected


def test_safetensors_of_another_name(network: nn.Module, tmp_path: Path) -> None:
    save_weights(tmp_path / "own.bin", network.state_dict(), {})
    assert _s(tmp_path / "own.bin", tmp_path / "found.json", *CALL) > 0


@pytest.mark.parametrize("ema", [None, 0.5])
def test_the_last_checkpoint_of_a_run(ema: float | None, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    config = tiny(training__ema=ema, training__epochs=2, measurement__every=0)
    train(run, config, device="cpu")
    state = torch.load(run.checkpoint, weights_only=True)["state"]["trainer"]
    save_weights(tmp_path / "own.safetensors", state["model" if ema is None else "average"], {})
    quick = ["--images", "20", "--measures", "s", "--restarts", "1"]
    found = _s(run.checkpoint, tmp_path / "found.json", *quick)  # the run knows its model and data
    told = json.loads((tmp_path / "found.json").read_text())
    assert told["request"]["data"] == "digits"
    assert ("averaged" in told["model"]["described"]) == (ema is not None)
    own = ["--model", "wrn-10-1", "--data", "digits", *quick]
    assert found == _s(tmp_path / "own.safetensors", tmp_path / "own.json", *own)
    assert found == _s(run.checkpoint, tmp_path / "own.json", *own)
    assert _s(run.best, tmp_path / "best.json", *quick) == _s(run.path, tmp_path / "best.json", *quick)
    run.best.unlink()
    assert main(["measure", str(run.path), *quick]) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (nn.Linear(2, 2), "(torch.nn.modules.linear.Linear), and loading that would run code"),
        (
            {"model": {}, "args": argparse.Namespace()},
            "save the weights alone: torch.save(model.state_dict()",
        ),
        ({"epoch": 3, "optimizer": {}}, "holds no weights by their names: found the keys epoch, optimizer"),
        ([1, 2], "found a list"),
        ({"weight": torch.ones(1)}, "does not fit the model"),
        (None, "is neither safetensors nor a whole checkpoint of torch"),
    ],
)
def test_errors(content: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.pt"
    if content is None:
        path.write_text("no checkpoint at all")
    else:
        torch.save(content, path)
    assert main(["measure", str(path), *CALL]) == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert message in told
