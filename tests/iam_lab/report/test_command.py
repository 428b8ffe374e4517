"""``iam report``: what it reads, what it writes, what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.iam_lab.report.fake_runs import fake_run

from iam_lab.cli import main


def test_the_command_writes_both(
    mixed_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, results = tmp_path / "new" / "page.html", tmp_path / "results.md"
    assert main(["report", str(mixed_runs), "--out", str(out), "--markdown", str(results)]) == 0
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert results.read_text(encoding="utf-8").startswith("# Results")
    shown = capsys.readouterr()
    assert "finished of" in shown.out
    assert "tab1-svhn-asam" in shown.err


def test_a_page_without_marks_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.md"
    results.write_text("# Written by hand\n", encoding="utf-8")
    assert main(["report", str(tmp_path), "--markdown", str(results)]) == 1
    assert results.read_text(encoding="utf-8") == "# Written by hand\n"
    assert "results.md" in capsys.readouterr().err


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path), str(tmp_path / "nosuch"), "--out", str(out)]) == 1
    assert f"There is no folder {tmp_path / 'nosuch'}." in capsys.readouterr().err
    assert not out.exists()


def test_an_empty_folder_gives_the_page_of_what_is_missing(tmp_path: Path) -> None:
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    assert "There are no runs yet" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_file_among_the_folders_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake_run(tmp_path, "digits-sgd", epochs=3)
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    given = [str(path) for path in sorted(tmp_path.iterdir())]
    assert main(["report", *given, "--out", str(tmp_path / "page.html")]) == 0
    shown = capsys.readouterr()
    assert "notes.txt: This is a file" in shown.err
    assert "1 finished of 1 runs" in shown.out


@pytest.mark.parametrize("given", [".", "docs"])
def test_a_folder_as_output_gets_the_page(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    assert main(["report", ".", "--out", given, "--markdown", given]) == 0
    assert (tmp_path / given / "page.html").exists()
    assert (tmp_path / given / "results.md").exists()
    assert "page.html" in capsys.readouterr().out


def test_one_command_makes_both_and_both_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fake_run(tmp_path / "results", "tab1-svhn-sam", error=3.0)
    command = "report results --out page.html --markdown docs/results.md"
    assert main(command.split()) == 0
    written = [tmp_path / "page.html", tmp_path / "docs" / "results.md"]
    before = [path.read_text(encoding="utf-8") for path in written]
    assert all(f"iam {command}" in text for text in before)
    assert main(command.split()) == 0
    assert [path.read_text(encoding="utf-8") for path in written] == before
