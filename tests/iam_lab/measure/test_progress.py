"""News of a long measure: in place on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from torch import nn

from iam_lab.cli import main
from iam_lab.measure import progress
from iam_lab.measure.progress import CLEARED, Ticker, passes
from iam_lab.models import build_model
from iam_lab.runs.checkpoint import save_weights


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_its_line_back() -> None:
    seconds = iter([0.0, 0.1, 1.0, 1.1, 2.0])
    ticker = Ticker(Terminal(), lambda: next(seconds))
    for news in ("too soon", "one", "too soon again", "two" * 1000):
        ticker.tell(news)
    ticker.clear()
    ticker.clear()
    assert isinstance(ticker.stream, Terminal)
    one, two, end = ticker.stream.getvalue().removeprefix(CLEARED).split(CLEARED)
    assert one == "one"
    assert two.startswith("two")
    assert len(two) < 1000  # within the terminal
    assert end == ""


def test_passes_are_counted_and_the_hook_goes() -> None:
    model, told = nn.Linear(2, 2), list[str]()
    with passes(model, "S", 2, told.append):
        for _ in range(3):
            model(torch.zeros(1, 2))
    model(torch.zeros(1, 2))
    assert told == [f"S: {done} of about {max(done, 2)} passes" for done in (1, 2, 3)]


def test_every_measure_tells_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "IN_FILE", 0.0)
    path = tmp_path / "net.safetensors"
    save_weights(path, build_model("mlp", classes=10, channels=1, image_size=8).state_dict(), {})
    call = ["measure", str(path), "--model", "mlp", "--data", "digits", "--images", "20", "--restarts", "1"]
    assert main([*call, "--measures", "error,s,fisher,fisher-trace,hessian,hessian-trace"]) == 0
    told = capsys.readouterr().err
    for name in ("error", "S(0.1)"):
        assert f"{name}: 1 of about" in told
    for name in ("lambda_max(F)", "lambda_max(H)"):
        assert f"{name}: 5 products, relative residual" in told
    for name in ("Tr(F)", "Tr(H)"):
        assert f"{name}: " in told
    assert "relative standard error" in told
