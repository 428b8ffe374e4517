"""The documents say what the measured files say, and their examples run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_measured_numbers_are_those_of_the_files() -> None:
    done = run("docs/fill.py", "--check")
    assert done.returncode == 0, done.stderr


def test_the_page_of_results_is_what_their_folders_say(tmp_path: Path) -> None:
    page = ROOT / "docs" / "results.md"
    again = tmp_path / "results.md"
    again.write_text(page.read_text(encoding="utf-8"), encoding="utf-8")  # whose discussion is kept
    command = "from iam_lab.cli import main; raise SystemExit(main())"
    done = run(
        "-c", command, "report", "results", "--out", str(tmp_path / "page.html"), "--markdown", str(again)
    )
    assert done.returncode == 0, done.stderr
    written = (
        again.read_text(encoding="utf-8")
        .replace(f"{tmp_path}/", "docs/")
        .replace("docs/page.html", "page.html")
    )
    assert written == page.read_text(encoding="utf-8")


def test_the_readme_example_prints_what_the_readme_shows() -> None:
    """Up to the last digits, which another processor rounds differently."""
    done = run("docs/examples/readme.py")
    assert done.returncode == 0, done.stderr
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = [line.removeprefix("# ") for line in readme.splitlines() if line.startswith("# S(0.5)")]
    values = [[float(line.split()[2]) for line in lines] for lines in (shown, done.stdout.splitlines())]
    assert len(values[0]) == 2
    assert all(abs(a - b) < 0.02 * a for a, b in zip(*values, strict=True))
