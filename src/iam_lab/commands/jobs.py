"""Many runs: what is missing or unfinished, on the devices there are, one process a GPU."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from iam_lab.commands.parsing import changed, changed_fields
from iam_lab.errors import Interrupted, LabError
from iam_lab.recipes.schema import Config, Recipe
from iam_lab.runs.folder import RunFolder
from iam_lab.runs.naming import folder_of


@dataclass(frozen=True)
class Job:
    """A run to make.

    Attributes:
        recipe: its name.
        config: what is run.
        changed: what differs from the recipe.
        path: the run's folder.
    """

    recipe: str
    config: Config
    changed: dict[str, Any]
    path: Path

    @property
    def state(self) -> str:
        """Whether it is ``finished``, ``unfinished`` or ``missing``."""
        folder = RunFolder(self.path)
        return "finished" if folder.finished else "unfinished" if folder.exists else "missing"


def jobs_of(recipe: Recipe, seeds: Iterable[int], root: Path, settings: Sequence[str] = ()) -> list[Job]:
    """A job for every seed of a recipe, with ``path=value`` settings."""
    config = changed(recipe.config, settings)
    told = changed_fields(recipe.config, config)
    return [
        Job(recipe.name, replace(config, seed=seed), told, folder_of(root, recipe.name, seed, told))
        for seed in seeds
    ]


def devices_here() -> list[str]:
    """Every GPU, or else the CPU."""
    import torch

    return [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]


def run_all(jobs: Sequence[Job], devices: Sequence[str], *, quiet: bool = False) -> list[tuple[Job, str]]:
    """Run what is not finished; a job that fails does not keep the others from running.

    Returns:
        The jobs that failed, with the reason.
    """
    due = [job for job in jobs if job.state != "finished"]
    if len(devices) == 1:
        return _serially(due, devices[0], quiet)
    return _side_by_side(due, devices)


def run_one(job: Job, device: str, *, quiet: bool = True) -> dict[str, Any]:
    """Make a run, or continue it, in this process."""
    from iam_lab.commands.show import watchers_for
    from iam_lab.train.run import train

    folder = RunFolder(job.path)
    watchers = watchers_for(folder, f"{job.recipe} seed {job.config.seed}", quiet=quiet)
    return train(folder, job.config, recipe=job.recipe, changed=job.changed, device=device, watchers=watchers)


def _serially(jobs: Sequence[Job], device: str, quiet: bool) -> list[tuple[Job, str]]:
    failed = []
    for number, job in enumerate(jobs, 1):
        if not quiet:
            sys.stderr.write(f"[{number}/{len(jobs)}] {job.path}\n")
        try:
            run_one(job, device, quiet=quiet)
        except Interrupted:
            raise
        except LabError as error:
            failed.append((job, str(error)))
    return failed


def _side_by_side(jobs: Sequence[Job], devices: Sequence[str]) -> list[tuple[Job, str]]:
    """A thread a device takes job after job and gives each a process of its own."""
    waiting: SimpleQueue[Job] = SimpleQueue()
    for job in jobs:
        waiting.put(job)
    failed: list[tuple[Job, str]] = []
    alive: dict[str, BaseProcess] = {}
    stopping = threading.Event()

    def serve(device: str) -> None:
        while not stopping.is_set():
            try:
                job = waiting.get_nowait()
            except Empty:
                return
            sys.stderr.write(f"{device}: {job.path}\n")
            reason = _in_process(job, device, lambda process: alive.__setitem__(device, process))
            if reason and not stopping.is_set():
                failed.append((job, reason))

    def stop(number: int, _: object) -> None:
        stopping.set()
        for process in alive.values():
            process.terminate()  # which a run takes as the request to save and leave
        raise Interrupted("the runs are being saved; run the same command again to continue.", number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with ThreadPoolExecutor(len(devices)) as pool:
            for done in [pool.submit(serve, device) for device in devices]:
                done.result()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return failed


def _in_process(job: Job, device: str, started: Callable[[BaseProcess], None]) -> str | None:
    """The reason why the run failed, None for a run that is finished."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_told, args=(job, device, sender))
    process.start()
    started(process)
    sender.close()
    try:
        reason: str | None = receiver.recv()
    except EOFError:
        reason = f"its process ended with status {process.exitcode}"
    process.join()
    return reason


def _told(job: Job, device: str, sender: Any) -> None:
    try:
        run_one(job, device)
    except LabError as error:
        sender.send(str(error))
    else:
        sender.send(None)
