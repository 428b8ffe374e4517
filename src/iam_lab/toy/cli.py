"""``iam toy``."""

from __future__ import annotations

import shlex
import sys
import time
import webbrowser
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from iam_lab.lazy import require
from iam_lab.machine import cores

if TYPE_CHECKING:
    from rich.console import Console

    from iam_lab.toy.result import Report


@dataclass(frozen=True)
class Options:
    """The paper's toy experiments: a 5,393-weight network on three Gaussians, and everything about it."""

    out: Path = Path("toy-output")
    """Folder for index.html, results.json, the table and the pictures."""
    quick: bool = False
    """Only see that everything works: a smaller network, few starts."""
    dense: bool = False
    """Also check the spectrum against the whole 5393 x 5393 matrix, which takes minutes."""
    open: bool = False
    """Show the page in a browser."""
    workers: int = cores()
    """Processes to compute in."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    began = time.perf_counter()
    tyro = require("tyro", extra="demo", purpose="iam toy")
    options: Options = tyro.cli(Options, args=arguments, prog="iam toy", description=Options.__doc__)
    if options.workers < 1:
        sys.stderr.write(f"iam toy: workers is 1 or more, found {options.workers}.\n")
        return 2
    console: Console = require("rich.console", extra="demo", purpose="iam toy").Console()
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from iam_lab.machine import machine
    from iam_lab.toy.experiment import Effort, experiment
    from iam_lab.toy.figures import pictures
    from iam_lab.toy.numbers import markdown
    from iam_lab.toy.page import toy_page
    from iam_lab.toy.result import Report

    effort = Effort.quick() if options.quick else Effort()
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("measuring", total=None)
        findings = experiment(
            replace(effort, dense=effort.dense or options.dense),
            options.workers,
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    drawn = pictures(findings)
    report = Report(findings, shlex.join(["iam", "toy", *arguments]), machine(), time.perf_counter() - began)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, svg in drawn.items():
        (options.out / f"{name}.svg").write_text(svg + "\n")
    (options.out / "numbers.inc").write_text(markdown(report))
    report.save(options.out / "results.json")
    page = options.out / "index.html"
    page.write_text(toy_page(report, drawn))
    _print(report, console)
    console.print(f"\nThe page: {page.resolve().as_uri()}", soft_wrap=True)
    console.print(f"{time.perf_counter() - began:.0f} seconds in all.")
    if options.open:
        webbrowser.open(page.resolve().as_uri())
    return 0


def _print(report: Report, console: Console) -> None:
    from rich.table import Table

    from iam_lab.toy.numbers import HEAD, rows, verdict

    table = Table(*HEAD, title="Algorithm 1 on the toy")
    for row in rows(report):
        table.add_row(*row)
    console.print(table)
    console.print(verdict(report))
