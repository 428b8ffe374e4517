"""The command, from its arguments to page, pictures and numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from iam_lab.cli import main


def test_quick_toy_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toy", "--quick", "--workers", "1", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    page = (tmp_path / "index.html").read_text()
    results = json.loads((tmp_path / "results.json").read_text())
    pictures = sorted(path.stem for path in tmp_path.glob("*.svg"))
    assert len(pictures) == page.count("<svg") == 12
    assert {"boundary-noise", "cosines", "share", "training-small", "steps-large"} <= set(pictures)
    assert results["paper"] == {"mean_relative_error": 0.0023, "cosine": 0.996, "cosine_stderr": 0.0004}
    assert len(results["training"]["0.001"]) == 3
    assert results["dense"]["eigenvalue_difference"] < 1e-10
    error = 100 * results["by_rho"]["0.001"]["relative_error"]["value"]
    table = (tmp_path / "numbers.inc").read_text()
    assert f"{error:.3f} ±" in table
    assert f"{error:.3f} ±" in page
    assert "Ten steps on the trained network: the estimate is off by" in " ".join(printed.split())
    assert not re.search(r'(src|href)="(?!#|[\w-]*#)', page)


def test_no_workers_is_a_mistake_of_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toy", "--workers", "0"]) == 2
    assert "workers" in capsys.readouterr().err
