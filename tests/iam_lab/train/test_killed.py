"""SIGKILL at any instant, and the same command again: the very weights and metrics of a quiet run."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.iam_lab.train.victim import bystander, victim

from iam_lab.runs.folder import RunFolder

KILLS = 36
TIMED_KILLS = 12


@pytest.fixture(scope="module")
def processes() -> Any:
    """A server that has loaded PyTorch already and forks for each process: a start takes no second."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            "iam_lab.train.run",
            "iam_lab.train.supervised",
            "iam_lab.train.fixmatch",
            "safetensors.torch",
            "sklearn.datasets",
            "torch._dynamo",  # which the first optimizer would load
        ]
    )
    return context


@pytest.fixture(scope="module")
def quiet(processes: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int, float]:
    """What an undisturbed run leaves behind, how many events it has, and how long it takes."""
    folder = tmp_path_factory.mktemp("quiet") / "run"
    assert ended(processes, victim, str(folder), None) == 0  # this one waits for the server too
    began = time.perf_counter()
    assert ended(processes, bystander, f"{folder}-again") == 0
    seconds = time.perf_counter() - began
    return left_behind(folder), int(Path(f"{folder}.events").read_text()), seconds


def test_killed_at_events(processes: Any, quiet: tuple[dict[str, Any], int, float], tmp_path: Path) -> None:
    expected, events, _ = quiet
    draw = random.Random(0)
    kills = runs = 0
    while kills < KILLS:
        folder = tmp_path / f"run{runs}"
        runs += 1
        # The last start lives: kills come more often than epochs, so a run would otherwise go on for ever.
        for fatal in [*(draw.randint(1, events // 2) for _ in range(6)), None]:
            status = ended(processes, victim, str(folder), fatal)
            kills += status == -signal.SIGKILL
            if status == 0:
                break
        assert left_behind(folder) == expected
    assert not list(tmp_path.rglob("*.part"))


def test_killed_inside_the_checkpoint(
    processes: Any, quiet: tuple[dict[str, Any], int, float], tmp_path: Path
) -> None:
    """Each of the events of one epoch's end, in turn: line, weights and checkpoint, half written or unnamed."""
    expected, events, _ = quiet
    for fatal in range(events - 12, events + 1):
        folder = tmp_path / f"run{fatal}"
        assert ended(processes, victim, str(folder), fatal) == -signal.SIGKILL
        assert ended(processes, victim, str(folder), None) == 0
        assert left_behind(folder) == expected


def test_killed_from_outside(
    processes: Any, quiet: tuple[dict[str, Any], int, float], tmp_path: Path
) -> None:
    expected, _, seconds = quiet
    draw = random.Random(1)
    kills = runs = 0
    while kills < TIMED_KILLS:
        folder = tmp_path / f"run{runs}"
        runs += 1
        for _ in range(3):
            process = processes.Process(target=bystander, args=(str(folder),))
            process.start()
            process.join(draw.uniform(0.1, 0.9) * seconds)
            process.kill()
            process.join()
            kills += process.exitcode == -signal.SIGKILL
        assert ended(processes, bystander, str(folder)) == 0
        assert left_behind(folder) == expected


def test_killed_with_few_labels(processes: Any, tmp_path: Path) -> None:
    """FixMatch: two streams of batches, and a file of which images have labels, which may be half written."""
    quiet = tmp_path / "quiet"
    assert ended(processes, victim, str(quiet), None, "fixmatch") == 0
    expected, labels = left_behind(quiet), (quiet / "labels.json").read_bytes()
    events = int(Path(f"{quiet}.events").read_text())
    half_written = 0
    for fatal in [*range(17, 38, 4), events // 2, events - 4]:  # around that file, in the middle, at the end
        folder = tmp_path / f"run{fatal}"
        assert ended(processes, victim, str(folder), fatal, "fixmatch") == -signal.SIGKILL
        half_written += folder.joinpath(".labels.json.part").exists()
        assert ended(processes, victim, str(folder), None, "fixmatch") == 0
        assert left_behind(folder) == expected
        assert (folder / "labels.json").read_bytes() == labels
    assert half_written >= 2


def ended(processes: Any, target: Callable[..., None], *arguments: Any) -> int:
    """The exit status of a process of its own."""
    process = processes.Process(target=target, args=arguments)
    process.start()
    process.join()
    return int(process.exitcode)


def left_behind(folder: Path) -> dict[str, Any]:
    """All that must be the same: weights and states to the bit, metrics without times."""
    run = RunFolder(folder)
    state = torch.load(run.checkpoint, weights_only=True)["state"]["trainer"]
    summary = run.summary()
    return {
        "state": comparable(state),
        "best": run.best.read_bytes(),
        "metrics": [without_times(line) for line in run.metrics()],
        "summary": without_times(
            {
                name: without_times(value) if isinstance(value, dict) else value
                for name, value in summary.items()
            }
        ),
    }


def without_times(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "timing"}


def comparable(value: Any) -> Any:
    """Tensors as their bytes."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.clone().flatten().numpy().tobytes()
    if isinstance(value, dict):
        return {key: comparable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(inner) for inner in value]
    return value
