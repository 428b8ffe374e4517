"""The commands, as they are typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from iam_lab import cli
from iam_lab.commands.jobs import devices_here, jobs_of, run_all
from iam_lab.recipes.registry import find_recipe
from iam_lab.runs.folder import RunFolder

FAST = ("training.epochs=1", "measurement.every=0", "evaluation.train_images=0")
FLAGS = ("--training.epochs", "1", "--measurement.every", "0", "--evaluation.train-images", "0")


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def iam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command in an empty folder: its status, what it printed, and its errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            status = cli.main(arguments)
        except SystemExit as leaving:  # of tyro, for a wrong call
            status = int(leaving.code or 0)
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def test_train_and_train_again(iam: Command) -> None:
    status, out, err = iam("train", "digits-iam-d", *FLAGS, "--device", "cpu")
    assert status == 0
    assert "finished: test error" in out
    assert "epoch 1/1  loss" in err
    (folder,) = Path("runs").glob("digits-iam-d+*/seed0")
    assert RunFolder(folder).changed == {
        "training.epochs": 1,
        "measurement.every": 0,
        "evaluation.train_images": 0,
    }
    status, out, err = iam("train", "digits-iam-d", *FLAGS, "--device", "cpu")
    assert status == 0
    assert "was finished already" in out
    assert err == ""


def test_fields_of_every_kind(iam: Command) -> None:
    status, _, _ = iam(
        "train",
        "digits-sgd",
        *FLAGS,
        *("--optimizer.name", "AdamW", "--optimizer.options", "betas=(0.9,0.95)", "--optimizer.lr", "0.003"),
        *("--training.clip-norm", "1.0", "--training.ema", "0.9", "--schedule.milestones", "0.5", "0.75"),
        *("--objective.norms-and-biases", "False", "--training.deterministic=true"),
        *("--seed", "4", "--out", "mine", "--quiet", "--tensorboard"),
    )
    assert status == 0
    config = RunFolder(Path("mine")).config()
    assert not config.objective.norms_and_biases
    assert config.training.deterministic
    assert config.optimizer.options == {"betas": (0.9, 0.95)}
    assert config.schedule.milestones == (0.5, 0.75)
    assert config.seed == 4
    assert list(Path("mine/tensorboard").iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "digits-iamd"), "There is no recipe 'digits-iamd'. Did you mean digits-iam-d"),
        (("train", "digits-sgd", "--training.epocs", "3"), "--training.epochs"),
        (("train", "digits-sgd", "--training.epochs", "many"), "--training.epochs"),
        (("train", "digits-sgd", "--training.precision", "fp8"), "--training.precision"),
        (("train", "digits-sgd", "--objective.rho", "0.1"), "'plain' has no rho"),
        (("train", "digits-sgd", "--optimizer.options", "momentum"), "NAME=VALUE"),
        (("train", "digits-sgd", "--optimizer.name", "Sgd"), "Did you mean 'SGD'"),
        (("train", "digits-sgd", "--model.name", "wrn-16"), "There is no model 'wrn-16'"),
        (("train", "digits-sgd", "--training.batch-size", "2000"), "which do not fill one batch of 2000"),
        (
            ("train", "digits-sgd", "--evaluation.batch-size", "0"),
            "evaluation.batch_size must be an integer of 1 or more, found 0",
        ),
        (
            ("train", "digits-semi-sgd", "--semi.labels", "5005"),
            "semi.labels: 5005 labelled images were asked",
        ),
        (("train", "digits-sgd", "--data.name", "digit"), "There is no data set 'digit'"),
        (("train", "digits-sgd", "--device", "cuda:99"), "no device 'cuda:99'"),
        (("train", "tab1-cifar10-sgd"), "cifar10/train is not in"),
        (("reproduce", "tab:99"), "No recipe is for 'tab:99'"),
        (("reproduce", "tab:1", "--dataset", "mnist"), "with these restrictions"),
        (("reproduce", "digits-sgd", "--set", "training.epocs=1"), "Did you mean 'training.epochs'"),
        (("reproduce", "digits-sgd", "--set", "training.epochs"), "FIELD=VALUE"),
        (("sweep", "digits-sgd"), "--space names the fields"),
        (("sweep", "digits-sgd", "--space", "optimizer.lrr=1,2"), "Did you mean 'optimizer.lr'"),
        (("sweep", "digits-sgd", "--space", "optimizer.lr=2:1"), "goes upwards"),
        (("sweep", "digits-sgd", "--space", "optimizer.lr=0:1"), "A grid needs choices"),
        (("train", "digits-sgd", "--semi.labels", "40"), "semi.labels is set, but the task 'supervised'"),
        (("train", "digits-semi-sgd", "--fixmatch.threshold", "0.5"), "('fixmatch' does): leave it out"),
        (
            ("train", "digits-semi-sgd", "--probe.epochs", "-1"),
            "the task 'semi-supervised' never looks at it",
        ),
        (
            ("train", "digits-simclr-sgd", "--evaluation.train-images", "9"),
            "('supervised', 'semi-supervised', ",
        ),
        (("reproduce", "digits-sgd", "--set", "semi.labels=40"), "('semi-supervised', 'fixmatch' do)"),
        (
            ("study", "--set", "simclr.temperature=0.1", "--dry-run"),
            "simclr.temperature is set, but the task",
        ),
        (("sweep", "digits-sgd", "--space", "semi.labels=40,400"), "semi.labels is set, but the task"),
        (
            ("sweep", "digits-sgd", "--space", "fixmatch.weight=1.0,2.0"),
            "fixmatch.weight is set, but the task",
        ),
        (
            ("sweep", "digits-sgd", "--space", "seed=1", "--set", "probe.lr=0.1"),
            "probe.lr is set, but the task",
        ),
        (
            ("sweep", "digits-sgd", "--space", "task=fixmatch,simclr", "semi.labels=40,400"),
            "the task 'simclr' never looks at it",
        ),
        (
            ("train", "digits-sgd", "--optimizer.lr", "nan"),
            "optimizer.lr must be a finite number of 0 or more",
        ),
        (("train", "digits-sgd", "--schedule.milestones", "5", "10"), "of 20 write 0.25 0.5"),
        (
            ("train", "digits-sgd", "--measurement.restarts", "0"),
            "measurement.restarts must be an integer of 1",
        ),
        (
            ("train", "digits-iam-d", "--objective.sub-batch", "7"),
            "objective.sub_batch must divide the batch of 64",
        ),
        (("train", "digits-sgd", "--device", "meta"), "'meta' has shapes and no numbers"),
        (("reproduce", "digits-sgd", "--set", "training.clip_norm=0"), "training.clip_norm must be"),
        (("study", "--set", "measurement.tolerance=-1", "--dry-run"), "measurement.tolerance must be"),
        (("reproduce", "digits-sgd", "--seeds", "0"), "--seeds must be an integer of 1 or more, found 0"),
        (("study", "--seeds", "-1"), "--seeds must be an integer of 1 or more, found -1"),
        (("bench", "--model", "nosuch"), "--model: There is no model 'nosuch'"),
        (("bench", "--batch", "-1"), "--batch must be an integer of 1 or more, found -1"),
        (("bench", "--batch", "6"), "--batch must be a multiple of 4 for the row 'IAM-D m=B/4', found 6"),
        (("bench", "--rounds", "0"), "--rounds must be an integer of 1 or more, found 0"),
        (("data", "get"), "needs the name of a data set; there are cifar10,"),
        (("data", "check", "nothing"), "There is no data set 'nothing'"),
        (("data", "get", "nothing"), "There is no data set 'nothing'"),
        (("trian",), "Did you mean 'iam train'"),
    ],
)
def test_errors_in_a_few_lines(
    arguments: tuple[str, ...], message: str, iam: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IAM_DATA", "nowhere")
    monkeypatch.setenv("COLUMNS", "200")
    status, _, err = iam(*arguments)
    assert status in (1, 2)
    assert message in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err
    assert len(err.splitlines()) < 30


@pytest.mark.parametrize(
    "changed",
    [
        ("--task", "semi-supervised"),
        ("--task", "supervised"),
        ("--task", "semi-supervised", "--semi.labels", "40"),
    ],
    ids=str,
)
def test_another_task_may_be_chosen(changed: tuple[str, ...], iam: Command) -> None:
    """What the recipe says to its own task is then in nobody's way."""
    status, _, err = iam("train", "digits-fixmatch-sgd", *FLAGS, *changed, "--out", "mine", "--quiet")
    assert status == 0, err
    assert RunFolder(Path("mine")).config().task == changed[1]


def test_a_mistake_leaves_no_run_behind(iam: Command) -> None:
    assert iam("train", "digits-sgd", "--training.label-smoothing", "2")[0] == 1
    assert not Path("runs").exists()
    assert iam("train", "digits-sgd", "--model.name", "wrn-16", "--out", "mine")[0] == 1
    assert not RunFolder(Path("mine")).exists
    assert iam("train", "digits-sgd", *FLAGS, "--out", "mine")[0] == 0


def test_reproduce_runs_what_is_missing(iam: Command) -> None:
    what = ("reproduce", "digits-iam-d", "--method", "iam-d", "--seeds", "2", "--set", *FAST)
    assert "2 missing" in iam(*what, "--dry-run")[1]
    status, out, err = iam(*what, "--devices", "cpu", "--quiet")
    assert status == 0, err
    assert "2 of 2 runs are finished" in out
    assert "2 finished" in iam(*what)[1]


def test_reproduce_of_a_table(iam: Command) -> None:
    out = iam("reproduce", "tab:1", "--dataset", "cifar10", "--seeds", "3", "--dry-run")[1]
    assert "18 missing" in out
    assert "runs/tab1-cifar10-iam-d/seed2" in out


def test_one_run_that_fails_does_not_keep_the_others(iam: Command) -> None:
    recipe = find_recipe("digits-sgd")
    bad, good = jobs_of(recipe, range(2), Path("runs"), FAST)
    bad.path.mkdir(parents=True)
    bad.path.joinpath("config.json").write_text("{")
    failed = run_all([bad, good], ["cpu"], quiet=True)
    assert [(job.path, "is no JSON" in reason) for job, reason in failed] == [(bad.path, True)]
    assert good.state == "finished"


def test_a_process_for_each_device(iam: Command) -> None:
    """Two devices that are both the CPU: each run in a process of its own."""
    jobs = jobs_of(find_recipe("digits-sgd"), range(2), Path("runs"), FAST)
    jobs[0].path.mkdir(parents=True)
    jobs[0].path.joinpath("last.ckpt").write_bytes(b"foreign")
    failed = run_all(jobs, ["cpu", "cpu:0"], quiet=True)
    assert [(job.path, "last.ckpt" in reason) for job, reason in failed] == [(jobs[0].path, True)]
    assert jobs[1].state == "finished"
    assert devices_here()


def test_sweep_on_a_grid_and_by_tpe(iam: Command) -> None:
    grid = ("sweep", "digits-iam-d", "--space", "objective.rho=0.05,0.2", "--set", *FAST)
    status, out, err = iam(*grid)
    assert status == 0, err
    assert out.count("validation_error") == 3
    (file,) = Path("runs").glob("sweep-digits-iam-d-*-seed0.json")
    written = json.loads(file.read_text())
    errors = [trial["validation_error"] for trial in written["trials"]]
    assert len(errors) == 2
    assert errors == sorted(errors)
    assert all(Path(trial["folder"], "summary.json").exists() for trial in written["trials"])
    assert "best of 2: objective.rho=" in iam(*grid)[1]  # nothing is run again
    assert "best of 1: objective.rho=0.1" in iam(*grid[:3], "objective.rho=0.1", *grid[4:])[1]
    assert "best of 1: objective.rho=0.2" in iam(*grid[:3], "objective.rho=0.2", *grid[4:], "--seed", "1")[1]
    assert list(Path("runs").glob("digits-iam-d+*rho=0.2*/seed1/summary.json"))
    other = ("sweep", "digits-sgd", "--space", "objective.rho=0.05", "--set", *FAST)  # which sgd has none of
    assert "best of 1: objective.rho=0.05" in iam(*other, "objective.name=sam", "objective.rho=0.1")[1]
    tpe = ("sweep", "digits-sgd", "--sampler", "tpe", "--space", "optimizer.lr=log:0.01:0.5", "--trials", "2")
    status, out, err = iam(*tpe, "--set", *FAST)
    assert status == 0, err
    assert "best of 2: optimizer.lr=" in out
    assert Path("runs/sweeps.db").exists()


def test_study_writes_kendalls_tau(iam: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from iam_lab.commands import study

    monkeypatch.setattr(study, "GRID", {"optimizer.lr": (0.01, 0.03, 0.1)})
    status, out, err = iam("study", "--set", "training.epochs=2", "measurement.images=32")
    assert status == 0, err
    assert out.count("Kendall's tau of") == 4
    found = json.loads(Path("runs/study-digits.json").read_text())
    assert found["n"] == 3
    assert set(found["tau"]) == {"S_rho", "trace_H", "lambda_max_H", "lambda_max(F)"}


def test_data_and_doctor(iam: Command) -> None:
    assert "1,437 +    360 images" in iam("data", "list")[1]
    status, out, _ = iam("data", "check", "digits")
    assert status == 0
    assert out.count("good") == 2
    assert "scikit-learn" in iam("data", "get", "digits")[1]
    status, out, _ = iam("doctor")
    assert status == 0, out
    assert "torch computes" in out


def test_help_is_quick_and_loads_no_torch() -> None:
    code = "import sys, iam_lab.cli as c; c.main(['--help']); sys.exit('torch' in sys.modules)"
    times = []
    for _ in range(3):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        times.append(time.perf_counter() - began)
        assert "iam reproduce" in done.stdout
    assert min(times) < 0.5


def test_ctrl_c_on_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "iam_lab.cli", "train", "digits-sgd", "--training.epochs", "100000"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, "--measurement.every", "0", "--out", "run"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while "epoch 2/" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    try:
        last = process.communicate(timeout=60)[1].strip().splitlines()[-1]
    finally:
        process.kill()
    assert process.returncode == 130
    assert "stopped by SIGINT; run is saved after step" in last
    assert "Run the same command again to continue" in last
    assert (tmp_path / "run" / "last.ckpt").exists()
