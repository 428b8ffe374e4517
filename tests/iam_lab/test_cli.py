"""The command itself: its help, its errors, and a reader that walks away."""

from __future__ import annotations

import subprocess
import sys

import pytest

from iam_lab.cli import COMMANDS, main


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"iam {name} " in shown for name in COMMANDS)
    assert main([]) == 2


def test_a_misspelt_command_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "Did you mean 'iam train'?" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("torch-iam ")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from iam_lab.cli import main; main(['--help']);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'rich', 'tyro', 'matplotlib')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_reader_that_stops_reading_ends_the_command_quietly() -> None:
    code = "import sys; from iam_lab.cli import main; sys.exit(main(['recipes']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) in (0, 141)
