"""What can go wrong with a run's files: a clear error that names the file, and nothing lost."""

from __future__ import annotations

import errno
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.iam_lab.train.configs import tiny
from tests.iam_lab.train.test_killed import left_behind

from iam_lab.errors import RunError
from iam_lab.recipes.schema import Config
from iam_lab.runs import files
from iam_lab.runs.checkpoint import load, load_weights, save
from iam_lab.runs.folder import RunFolder, find_runs
from iam_lab.runs.lock import exclusive
from iam_lab.train.run import train

SHORT = tiny(training__epochs=2, measurement__every=0)


class Full:
    """A file on a disk that is full after some bytes."""

    def __init__(self, file: Any, room: int) -> None:
        self.file, self.room = file, room

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def write(self, content: Any) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = int(self.file.write(content[: self.room]))
        self.room -= written
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.fixture
def disk_full(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """The disk is full when a file of this name is written for the n-th time, after a few bytes."""

    def arrange(name: str, after: int) -> None:
        count = 0

        def opened(path: Any, mode: str, **options: Any) -> Any:
            nonlocal count
            file = open(path, mode, **options)  # noqa: SIM115 - handed on
            if name not in Path(path).name:
                return file
            count += 1
            return Full(file, 20) if count > after else file

        monkeypatch.setattr(files, "open", opened, raising=False)

    return arrange


@pytest.mark.parametrize(
    ("name", "after"),
    [("last.ckpt", 0), ("last.ckpt", 1), ("metrics.jsonl", 1), ("best.safetensors", 0), ("summary", 0)],
)
def test_full_disk_loses_nothing(
    name: str,
    after: int,
    tmp_path: Path,
    disk_full: Callable[[str, int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train(RunFolder(tmp_path / "quiet"), SHORT, device="cpu")
    disk_full(name, after)
    with pytest.raises(RunError, match=rf"{name}.*No space left.*run the same command again"):
        train(RunFolder(tmp_path / "run"), SHORT, device="cpu")
    assert not list(tmp_path.rglob("*.part"))
    monkeypatch.undo()
    train(RunFolder(tmp_path / "run"), SHORT, device="cpu")
    expected, found = left_behind(tmp_path / "quiet"), left_behind(tmp_path / "run")
    assert found == expected


def test_truncated_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    save(path, Config(), {"step": torch.arange(1000)})
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 10):
        path.write_bytes(whole[:length])
        with pytest.raises(RunError, match=rf"last.ckpt .*{length} bytes.* damaged or no checkpoint"):
            load(path, Config(), "cpu")


class Malicious:
    def __reduce__(self) -> Any:
        return os.system, ("touch /nowhere/ran",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"weights": torch.zeros(2)}, "written by another program"),
        ([1, 2], "written by another program"),
        (Malicious(), "would run code"),
        ({"kind": "iam-run", "format": 99}, "has format 99"),
    ],
)
def test_foreign_checkpoint(content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    torch.save(content, path)
    with pytest.raises(RunError, match=message) as raised:
        load(path, Config(), "cpu")
    assert "last.ckpt" in str(raised.value)


def test_checkpoint_of_another_config(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    save(path, Config(), {})
    with pytest.raises(RunError, match="another run: seed differs"):
        load(path, Config(seed=1), "cpu")


def test_checkpoint_from_before_a_field_was_added(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    save(path, SHORT, {"step": 1})
    content = torch.load(path, weights_only=True)
    del content["config"]["probe"]
    torch.save(content, path)
    assert load(path, SHORT, "cpu") == {"step": 1}


def test_damaged_checkpoint_stops_a_run_and_stays(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    train(folder, SHORT, device="cpu")
    folder.summary_file.unlink()
    folder.checkpoint.write_bytes(b"not a checkpoint")
    with pytest.raises(RunError, match=r"last\.ckpt"):
        train(folder, SHORT, device="cpu")
    assert folder.checkpoint.read_bytes() == b"not a checkpoint"
    assert len(folder.metrics()) == 2


def test_missing_metrics(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    train(folder, SHORT, device="cpu")
    folder.summary_file.unlink()
    folder.metrics_file.unlink()
    with pytest.raises(RunError, match=r"metrics\.jsonl has 0 of the 2 epochs"):
        train(folder, SHORT, device="cpu")


def test_damaged_weights(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"\x08\0\0\0\0\0\0\0nonsense")
    with pytest.raises(RunError, match=r"w\.safetensors is no whole safetensors file"):
        load_weights(path)
    with pytest.raises(RunError, match="cannot be read"):
        load_weights(tmp_path / "none.safetensors")


def test_edited_config(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.begin("mine", Config())
    folder.config_file.write_text(folder.config_file.read_text().replace('"seed": 0', '"seed": "zero"'))
    with pytest.raises(RunError, match=r"config\.json is not a config.*seed must be int, found 'zero'"):
        folder.config()
    folder.config_file.write_text("{")
    with pytest.raises(RunError, match=r"config\.json is no JSON"):
        folder.config()


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is no run"):
        RunFolder(tmp_path).config()
    with pytest.raises(RunError, match="There is no folder"):
        list(find_runs(tmp_path / "nowhere"))
    with pytest.raises(RunError, match="not finished"):
        RunFolder(tmp_path).summary()


def test_two_runs_in_this_process(tmp_path: Path) -> None:
    with (
        exclusive(tmp_path),
        pytest.raises(RunError, match="by this very process"),
        exclusive(tmp_path),
    ):
        pass
    with exclusive(tmp_path):
        pass


def hold(folder: str, ready: Any, go: Any) -> None:
    with exclusive(Path(folder)):
        ready.set()
        go.wait(30)


def test_two_runs_in_two_processes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(str(tmp_path), ready, go))
    holder.start()
    assert ready.wait(30)
    with pytest.raises(RunError, match=f"being written by process {holder.pid} on"), exclusive(tmp_path):
        pass
    holder.kill()  # the kernel lets go of a dead process's lock
    holder.join()
    with exclusive(tmp_path):
        pass


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be made"):
        train(RunFolder(tmp_path / "file" / "run"), SHORT, device="cpu")


def test_divergence_says_which_step_and_what_to_try(tmp_path: Path) -> None:
    config = replace(SHORT, optimizer=replace(SHORT.optimizer, lr=1e30))
    config = replace(config, training=replace(config.training, epochs=20, patience=5))
    with pytest.raises(
        RunError, match=r"gradients of steps \d+ to \d+ \(epoch \d+\) are not finite.*lr"
    ) as found:
        train(RunFolder(tmp_path / "run"), config, device="cpu")
    assert "clip_norm" in str(found.value)
    assert "rho" in str(found.value)


def test_unknown_device(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no device 'cuda:99'"):
        train(RunFolder(tmp_path / "run"), SHORT, device="cuda:99")
