"""Many runs: what is missing or unfinished, on the devices there are, one process a GPU."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from iam_lab.commands.parsing import changed, changed_fields
from iam_lab.errors import Interrupted, LabError
from iam_lab.recipes.schema import Config, Recipe
from iam_lab.runs.folder import RunFolder
from iam_lab.runs.naming import folder_of
from iam_lab.train.stop import Stop, heard


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


@dataclass(frozen=True)
class _Child:
    """A run in a process of its own."""

    job: Job
    device: str
    process: BaseProcess
    told: Connection

    def reason(self) -> str | None:
        """Why the run failed, None for one that is finished; waits for the process."""
        self.process.join()
        try:
            reason: str | None = self.told.recv()
        except (EOFError, OSError):
            status = self.process.exitcode or 0
            how = (
                f"was killed by {signal.Signals(-status).name}"
                if status < 0
                else f"ended with status {status}"
            )
            reason = f"its process {how}"
        self.told.close()
        return reason


def _side_by_side(jobs: Sequence[Job], devices: Sequence[str]) -> list[tuple[Job, str]]:
    """Every device has one job after the other, each in a process of its own."""
    waiting, free, failed = list(jobs), list(devices), list[tuple[Job, str]]()
    running: list[_Child] = []
    with _passed_on(running) as stop:
        while running or (waiting and not stop.asked):
            while free and waiting and not stop.asked:
                _start(waiting.pop(0), free.pop(0), running, stop)
            ended = wait([child.process.sentinel for child in running])
            for child in [child for child in running if child.process.sentinel in ended]:
                running.remove(child)
                free.append(child.device)
                if reason := child.reason():
                    failed.append((child.job, reason))
    if stop.signal is not None:
        sys.stderr.writelines(f"{job.path}: {reason}\n" for job, reason in failed)
        name = signal.Signals(stop.signal).name
        raise Interrupted(f"stopped by {name}. Run the same command again to continue.", stop.signal)
    return failed


@contextmanager
def _passed_on(running: Sequence[_Child]) -> Iterator[Stop]:
    """Ask the runs to save and leave at the first signal, kill them at the second."""
    stop = Stop()

    def pass_on(number: int, _: object) -> None:
        if stop.asked:
            for child in list(running):
                child.process.kill()
        else:
            _ask(running)
        stop.signal = number

    with heard(pass_on):
        yield stop


def _ask(running: Sequence[_Child]) -> None:
    for child in list(running):
        child.process.terminate()  # which a run takes as the request to save and leave


def _start(job: Job, device: str, running: list[_Child], stop: Stop) -> None:
    sys.stderr.write(f"{device}: {job.path}\n")
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_told, args=(job, device, sender))
    # A terminal sends Ctrl-C to parent and children: these are deaf to it from birth, the parent asks them.
    # It is held back meanwhile, and not lost.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    sender.close()
    running.append(_Child(job, device, process, receiver))
    if stop.asked:  # while this one was started
        process.terminate()


def _told(job: Job, device: str, sender: Connection) -> None:
    try:
        run_one(job, device)
    except Interrupted:
        sender.send("stopped and saved")
    except LabError as error:
        sender.send(str(error))
    else:
        sender.send(None)
