"""What can go wrong with a run's files: a clear error that names the file, and nothing lost."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from tests.iam_lab.train.configs import tiny
from tests.iam_lab.train.test_killed import left_behind

from iam_lab.errors import RunError
from iam_lab.recipes.schema import Config
from iam_lab.runs import files
from iam_lab.runs.checkpoint import load, load_weights, save
from iam_lab.runs.folder import RunFolder, find_runs
from iam_lab.runs.lock import exclusive
from iam_lab.train.run import train
from iam_lab.train.supervised import Supervised

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
        ({"kind": "iam-run"}, "has format None"),
        ({"kind": "iam-run", "format": 1}, "lacks its config or its state"),
        ({"kind": "iam-run", "format": 1, "config": {}, "state": 3}, "lacks its config or its state"),
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


def spoiled(folder: RunFolder, change: Callable[[dict[str, Any]], Any]) -> None:
    """An unfinished run whose checkpoint is well labelled, and holds something else."""
    train(folder, SHORT, device="cpu")
    folder.summary_file.unlink()
    content = torch.load(folder.checkpoint, weights_only=True)
    change(content["state"])
    torch.save(content, folder.checkpoint)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict.clear, "it has no 'trainer'"),
        (lambda state: state["trainer"].pop("rates"), "it has no 'rates'"),
        (lambda state: state["trainer"]["model"].popitem(), r"Error\(s\) in loading state_dict"),
        (lambda state: state["trainer"].update(model=3), "state_dict to be dict-like"),
        (
            lambda state: state["trainer"]["optimizer"].update(param_groups=[]),
            "different number of parameter",
        ),
    ],
    ids=["empty", "no rates", "fewer weights", "no weights", "no groups"],
)
def test_a_checkpoint_with_a_foreign_state(change: Any, message: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    spoiled(folder, change)
    with pytest.raises(RunError, match=rf"last\.ckpt is no state of this run: .*{message}") as raised:
        train(folder, SHORT, device="cpu")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("line", ["3", '{"a": 1}', "[1, 2]", '{"epoch": "one"}'])
def test_metrics_that_are_no_lines_of_epochs(line: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append({"epoch": 1})
    folder.metrics_file.write_text(folder.metrics_file.read_text() + line + "\n")
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 2: .* is not the metrics of an epoch"):
        folder.metrics()


def test_a_summary_of_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    train(folder, SHORT, device="cpu")
    summary = folder.summary()
    folder.summary_file.write_text("{}")
    with pytest.raises(RunError, match=r"summary\.json has no group 'last'.*Delete the file"):
        train(folder, SHORT, device="cpu")
    folder.summary_file.unlink()
    assert train(folder, SHORT, device="cpu")["last"] == summary["last"]


@pytest.mark.parametrize("name", ["config", "recipe"])
def test_a_config_without_its_group(name: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.begin("mine", Config())
    content = json.loads(folder.config_file.read_text())
    del content[name]
    folder.config_file.write_text(json.dumps(content))
    with pytest.raises(RunError, match=rf"config\.json has no '{name}'"):
        folder.config()


def best_epoch(folder: RunFolder) -> int:
    with safe_open(folder.best, "pt") as file:
        return int(json.loads(file.metadata()["run"])["epoch"])


def test_deleted_weights_are_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the last epoch are still there; of the others the best to come is kept, and says which it is."""
    config = tiny(measurement__every=0, training__epochs=3)
    errors = iter([30.0, 10.0, 20.0])
    judged = Supervised.evaluate

    def evaluate(*arguments: Any) -> dict[str, float]:
        return {**judged(*arguments), "validation_error": next(errors)}

    monkeypatch.setattr(Supervised, "evaluate", evaluate)
    folder = RunFolder(tmp_path / "run")
    train(folder, config, device="cpu")
    assert best_epoch(folder) == 2
    folder.best.unlink()
    folder.summary_file.unlink()
    train(folder, config, device="cpu")
    assert best_epoch(folder) == 3
    last = torch.load(folder.checkpoint, weights_only=True)["state"]["trainer"]["average"]
    assert all(torch.equal(weight, last[name]) for name, weight in load_weights(folder.best).items())


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


def test_a_full_disk_does_not_keep_from_locking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name in the lock is a courtesy."""

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("write", "truncate"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, full)
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
