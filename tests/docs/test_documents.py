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


def test_the_readme_example_prints_what_the_readme_shows() -> None:
    """Up to the last digits, which another processor rounds differently."""
    done = run("docs/examples/readme.py")
    assert done.returncode == 0, done.stderr
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = [line.removeprefix("# ") for line in readme.splitlines() if line.startswith("# S(0.5)")]
    values = [[float(line.split()[2]) for line in lines] for lines in (shown, done.stdout.splitlines())]
    assert len(values[0]) == 2
    assert all(abs(a - b) < 0.02 * a for a, b in zip(*values, strict=True))
