"""``iam report``: folders of runs to one page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from iam_lab.errors import LabError, RunError
from iam_lab.report import page
from iam_lab.report.content import Content, compose
from iam_lab.report.evidence import gather
from iam_lab.report.markdown import render as render_markdown
from iam_lab.runs.files import write_atomic

USUAL = (Path("results"), Path("runs"))
PAGE, MARKDOWN = "page.html", "results.md"


def report(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = (),
    out: Path | None = None,
    markdown: Path | None = None,
) -> int:
    """Write one page from folders of runs: tables and figures beside the paper's, and what is missing.

    Args:
        runs: folders with runs in them or below; by default results and runs, where they exist.
        out: the HTML page, which needs nothing beside itself, or a folder for it; page.html where no file is named
            at all.
        markdown: a page for the documentation, or a folder for it; its discussion, written by hand, is kept.
    """
    _check(runs)
    if out is None and markdown is None:
        out = Path(PAGE)
    out, markdown = _file(out, PAGE), _file(markdown, MARKDOWN)
    roots = runs or tuple(root for root in USUAL if root.is_dir())
    evidence = gather(roots)
    content = compose(evidence, _command(roots, out, markdown))
    written = []
    if markdown is not None:
        _write(markdown, _rewritten(markdown, content))
        written.append(markdown)
    if out is not None:
        _write(out, page.render(content))
        written.append(out)
    for problem in evidence.problems:
        sys.stderr.write(f"iam report: {problem.folder}: {problem.message}\n")
    told = " and ".join(map(str, written))
    sys.stdout.write(f"{told}: {content.finished} finished of {len(evidence.runs)} runs\n")
    return 0


def _check(roots: Sequence[Path]) -> None:
    """A misspelt folder would give a page on which everything is missing."""
    missing = [str(root) for root in roots if not root.exists()]
    if missing:
        raise RunError(
            f"There is no folder {', '.join(missing)}. Runs lie where 'iam train --root' put them, by default in "
            f"{USUAL[1]}; without a folder, 'iam report' looks into {' and '.join(map(str, USUAL))}."
        )


def _file(given: Path | None, name: str) -> Path | None:
    """The file that is meant: in a folder, the one of that name."""
    return given / name if given is not None and given.is_dir() else given


def _command(roots: Sequence[Path], out: Path | None, markdown: Path | None) -> str:
    """What to type for the same page again."""
    words = ["iam", "report", *map(str, roots)]
    words += ["--out", str(out)] if out else []
    words += ["--markdown", str(markdown)] if markdown else []
    return shlex.join(words)


def _rewritten(path: Path, content: Content) -> str:
    before = path.read_text(encoding="utf-8") if path.exists() else None
    try:
        return render_markdown(content, before)
    except LabError as error:
        raise type(error)(f"{path}: {error}") from error


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path.parent} cannot be made: {error.strerror}.") from error
    write_atomic(path, text.encode())


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    try:
        return tyro.cli(report, prog="iam report", args=list(arguments))
    except LabError as error:
        sys.stderr.write(f"iam report: {error}\n")
        return 1
