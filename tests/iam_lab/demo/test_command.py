"""The command, from its arguments to the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from iam_lab.cli import main
from iam_lab.demo.methods import METHODS


def test_quick_demo_writes_a_page_that_stands_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--quick", "--seeds", "2", "--workers", "1", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    page = (tmp_path / "index.html").read_text()
    results = json.loads((tmp_path / "results.json").read_text())
    for one in METHODS:
        assert one.look.name in printed
        assert one.look.name in page
        assert len([run for run in results["runs"] if run["key"] == one.key]) == 2
    assert (tmp_path / "index.html").as_uri() in printed.replace("\n", "")
    assert page.count("<svg") == 5
    assert not re.search(r'(src|href)="(?!#|[\w-]*#)', page)
    assert results["command"].startswith("iam demo --quick")
    error = results["methods"]["iam-d"]["test_error_percent"]["value"]
    assert f"{error:.1f}" in page


def test_a_broken_file_of_choices_is_one_line_of_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "tuned.json"
    broken.write_text("{}")
    assert main(["demo", "--out", str(tmp_path / "out"), "--tuned", str(broken)]) == 1
    assert "iam demo --tune" in capsys.readouterr().err


def test_no_seeds_is_a_mistake_of_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seeds", "0"]) == 2
    assert "seeds" in capsys.readouterr().err
