"""Runs side by side: a signal saves them all, a process that is killed is named, and nothing hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iam_lab.commands import jobs
from iam_lab.commands.jobs import jobs_of, run_all
from iam_lab.errors import Interrupted
from iam_lab.recipes.registry import find_recipe
from iam_lab.train.stop import stoppable

LONG = ("training.epochs=2000", "training.steps_per_epoch=20000", "measurement.every=0")


@pytest.mark.parametrize(
    ("number", "to_all", "devices"),
    [
        (signal.SIGINT, True, ("cpu", "cpu:0")),  # Ctrl-C in a terminal
        (signal.SIGTERM, False, ("cpu", "cpu")),  # kill
    ],
    ids=["ctrl-c", "kill"],
)
def test_a_signal_saves_every_run(
    number: signal.Signals, to_all: bool, devices: tuple[str, ...], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "iam_lab.cli", "reproduce", "digits-sgd", "--seeds", "3"]
    process = subprocess.Popen(
        [*command, "--devices", *devices, "--set", *LONG],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for(tmp_path, "environment.json", 2)
        (os.killpg if to_all else os.kill)(process.pid, number)
        told = process.communicate(timeout=60)[1]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 128 + number
    assert len(list(tmp_path.rglob("last.ckpt"))) == 2
    assert told.count("stopped and saved") == 2
    assert f"stopped by {number.name}. Run the same command again to continue." in told.splitlines()[-1]
    assert "Traceback" not in told
    assert "ignored due to race" not in told


def wait_for(folder: Path, name: str, count: int) -> None:
    until = time.monotonic() + 120
    while len(list(folder.rglob(name))) < count:
        assert time.monotonic() < until, f"no {count} of {name}"
        time.sleep(0.05)


def killed(job: jobs.Job, device: str, sender: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_says_by_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_told", killed)
    due = jobs_of(find_recipe("digits-sgd"), range(2), tmp_path)
    failed = run_all(due, ["cpu", "cpu"])
    assert sorted(job.path for job, _ in failed) == [job.path for job in due]
    assert {reason for _, reason in failed} == {"its process was killed by SIGKILL"}


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stoppable() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            stop.check()
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(Interrupted, match="SIGTERM"):
                stop.check()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_worker_may_be_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once by whoever signals the group, and once by the parent that was signalled with it."""
    monkeypatch.setattr("iam_lab.train.stop.parent_process", lambda: object())
    before = signal.getsignal(signal.SIGTERM)
    with stoppable() as stop:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            stop.check()
    assert signal.getsignal(signal.SIGTERM) is before
