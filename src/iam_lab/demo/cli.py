"""``iam demo``."""

from __future__ import annotations

import shlex
import sys
import time
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from iam_lab.errors import LabError
from iam_lab.lazy import require
from iam_lab.machine import cores

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from iam_lab.demo.result import Result

TUNING_SEEDS = 5


@dataclass(frozen=True)
class Options:
    """Learn handwritten digits from 100 labels in five ways, and write a page about it."""

    out: Path = Path("demo-output")
    """Folder for index.html and results.json."""
    seeds: int = 5
    """Runs of every method."""
    quick: bool = False
    """Only see that everything works: a few steps of each run."""
    open: bool = False
    """Show the page in a browser."""
    tune: bool = False
    """Choose learning rate, weight decay, rho and beta anew on the validation images, and write them down."""
    tuned: Path | None = None
    """The file of chosen values; by default the one in the package."""
    workers: int = cores()
    """Processes to train in."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    began = time.perf_counter()
    tyro = require("tyro", extra="demo", purpose="iam demo")
    options: Options = tyro.cli(Options, args=arguments, prog="iam demo", description=Options.__doc__)
    console: Console = require("rich.console", extra="demo", purpose="iam demo").Console()
    command = shlex.join(["iam", "demo", *arguments])
    if options.seeds < 1 or options.workers < 1:
        sys.stderr.write(
            f"iam demo: seeds and workers are 1 or more, found {options.seeds} and {options.workers}.\n"
        )
        return 2
    try:
        if options.tune:
            _tune(options, console, command)
        else:
            _learn(options, console, command, began)
    except LabError as error:
        sys.stderr.write(f"iam demo: {error}\n")
        return 1
    return 0


def _learn(options: Options, console: Console, command: str, began: float) -> None:
    from iam_lab.demo.page import demo_page
    from iam_lab.demo.result import Effort, compute
    from iam_lab.demo.tuning import FILE, Tuned

    tuned = Tuned.load(options.tuned or FILE)
    options.out.mkdir(parents=True, exist_ok=True)
    with _progress(console) as progress:
        result = compute(
            tuned,
            options.seeds,
            Effort.quick() if options.quick else Effort(),
            options.workers,
            command,
            lambda: time.perf_counter() - began,
            _reporter(progress),
        )
    path = options.out / "index.html"
    path.write_text(demo_page(result))
    result.save(options.out / "results.json")
    _print(result, console)
    console.print(f"\nThe page: {path.resolve().as_uri()}", soft_wrap=True)
    console.print(f"{time.perf_counter() - began:.0f} seconds in all.")
    if options.open:
        webbrowser.open(path.resolve().as_uri())


def _tune(options: Options, console: Console, command: str) -> None:
    from iam_lab.demo.result import Effort
    from iam_lab.demo.study import Schedule
    from iam_lab.demo.tuning import FILE, tune

    schedule = Schedule((Effort.quick() if options.quick else Effort()).steps)
    with _progress(console) as progress:
        tuned = tune(schedule, TUNING_SEEDS, options.workers, command, _reporter(progress))
    path = options.tuned or FILE
    tuned.save(path)
    console.print(f"learning rate {tuned.learning_rate:g}, weight decay {tuned.weight_decay:g}")
    for key, values in tuned.options.items():
        console.print(
            f"{key}: {values or 'nothing to choose'}, validation error {tuned.chosen(key).error:.2f} %"
        )
    console.print(f"Written to {path}", soft_wrap=True)


def _progress(console: Console) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description:<32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def _reporter(progress: Progress) -> Callable[[str, int, int], None]:
    """What keeps a bar for every stage."""
    stages: dict[str, TaskID] = {}

    def report(stage: str, done: int, total: int) -> None:
        if stage not in stages:
            stages[stage] = progress.add_task(stage, total=total)
        progress.update(stages[stage], completed=done)

    return report


def _print(result: Result, console: Console) -> None:
    from rich.table import Table

    from iam_lab.demo.methods import METHODS
    from iam_lab.demo.study import RHO

    seeds = len(result.of("plain"))
    table = Table(title=f"Digits from 100 labels, {seeds} seeds, {result.test_images} test images")
    table.add_column("method")
    for heading in ("test error %", f"S at rho {RHO:g}", "time per step"):
        table.add_column(heading, justify="right")
    for one in METHODS:
        table.add_row(
            one.look.name,
            result.error(one.key).text(2),
            result.inconsistency(one.key).text(4),
            f"{result.costs[one.key].ratio:.2f} x",
        )
    console.print(table)
