"""A sweep goes on where it was stopped, and answers mistakes before its first trial."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from tests.iam_lab.train.configs import tiny, tiny_fixmatch, tiny_semi, tiny_simclr

from iam_lab import cli
from iam_lab.commands.space import space_of
from iam_lab.commands.sweep import due
from iam_lab.errors import RecipeError
from iam_lab.recipes.schema import Config
from iam_lab.runs.folder import RunFolder
from iam_lab.runs.lock import exclusive
from iam_lab.runs.metrics import METRICS
from iam_lab.train.run import train
from iam_lab.train.trainer import Trainer

FAST = ("training.epochs=1", "measurement.every=0", "evaluation.train_images=0")
Sweep = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sweep:
    """Sweep digits-sgd over some ranges in an empty folder: status, output, errors."""
    monkeypatch.chdir(tmp_path)

    def run(
        *space: str, more: tuple[str, ...] = (), settings: tuple[str, ...] = FAST
    ) -> tuple[int, str, str]:
        command = ["sweep", "digits-sgd", "--device", "cpu", *more, "--space", *space, "--set", *settings]
        status = cli.main(command)
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


@pytest.fixture
def stopped_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Send SIGTERM at the n-th step of the sweep, once."""

    def arrange(step: int) -> None:
        made = 0
        advance = Trainer.advance

        def advanced(trainer: Trainer) -> None:
            nonlocal made
            advance(trainer)
            made += 1
            if made == step:
                os.kill(os.getpid(), signal.SIGTERM)

        monkeypatch.setattr(Trainer, "advance", advanced)

    return arrange


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_a_sweep_that_was_stopped_goes_on_with_the_same_run(
    sampler: str, sweep: Sweep, stopped_at: Callable[[int], None]
) -> None:
    stopped_at(25)  # in the second trial
    more = ("--sampler", sampler, "--trials", "3")
    status, _, err = sweep("optimizer.lr=0.05,0.1,0.2", more=more)
    assert status == 128 + signal.SIGTERM
    assert "Traceback" not in err
    assert len(err.splitlines()) < 4
    (begun,) = (f.parent for f in Path("runs").rglob("last.ckpt") if not RunFolder(f.parent).finished)
    status, out, err = sweep("optimizer.lr=0.05,0.1,0.2", more=more)
    assert status == 0, err
    assert str(begun) in out.splitlines()[0]
    assert "best of 3" in out
    if sampler == "grid":
        assert len(list(Path("runs").rglob("summary.json"))) == 3


def test_the_grid_of_several_machines() -> None:
    """Points that others are at come last, points with results never, and each is tried once."""
    study = optuna.create_study()
    grid = [{"x": value} for value in (1, 2, 3, 4)]
    distributions: dict[str, Any] = {"x": optuna.distributions.CategoricalDistribution([1, 2, 3, 4])}
    add, made, state = study.add_trial, optuna.create_trial, optuna.trial.TrialState
    add(made(state=state.COMPLETE, params={"x": 2}, distributions=distributions, value=1.0))
    add(made(state=state.RUNNING, params={"x": 1}, distributions=distributions))
    add(made(state=state.FAIL, params={"x": 3}, distributions=distributions))
    assert list(due(study, grid, wanted=4)) == [{"x": 3}, {"x": 4}, {"x": 1}]
    assert list(due(study, grid, wanted=1)) == []
    study.enqueue_trial({"x": 4})
    assert next(due(study, grid, wanted=4)) is None
    assert next(due(study, None, wanted=2)) is None
    assert list(due(study, None, wanted=1)) == []


def test_a_run_that_another_one_is_making_is_left_to_it(sweep: Sweep) -> None:
    assert sweep("seed=1,2")[0] == 0
    (other,) = Path("runs").rglob("seed2")
    (other / "summary.json").unlink()
    Path("runs/sweeps.db").unlink()
    with exclusive(other):
        status, out, _ = sweep("seed=1,2")
    assert status == 0
    assert "best of 1: seed=1" in out
    assert "best of 2" in sweep("seed=1,2")[1]


def test_every_sweep_has_a_file_of_its_own(sweep: Sweep) -> None:
    for space in ("seed=1", "seed=2"):
        assert sweep(space)[0] == 0
    assert sweep("seed=1", more=("--name", "mine"))[0] == 0
    files = sorted(path.name for path in Path("runs").glob("sweep-*.json"))
    assert len(files) == 3
    assert files[-1] == "sweep-mine-seed0.json"


def test_integers_are_searched_as_integers(sweep: Sweep) -> None:
    more = ("--sampler", "tpe", "--trials", "1", "--name", "mine")
    status, _, err = sweep("training.batch_size=log:16:64", more=more)
    assert status == 0, err
    (trial,) = json.loads(Path("runs/sweep-mine-seed0.json").read_text())["trials"]
    assert isinstance(trial["values"]["training.batch_size"], int)


def test_a_trial_that_diverges_is_left_out(sweep: Sweep) -> None:
    status, out, err = sweep("optimizer.lr=1e30,0.1", settings=(*FAST[1:], "training.epochs=2"))
    assert status == 0
    assert "Diverged" in err
    assert len(err.splitlines()) < 6
    assert "best of 1: optimizer.lr=0.1" in out


@pytest.mark.parametrize(
    ("space", "more", "message"),
    [
        (("optimizer.lr=0.05,abc",), (), "optimizer.lr must be float, found 'abc'"),
        (("optimizer.lr=0.05,-1",), (), "optimizer.lr must be a finite number of 0 or more, found -1.0"),
        (("optimizer.lr=0.05,nan",), (), "optimizer.lr must be"),
        (("training.batch_size=16,32.5",), (), "training.batch_size must be int"),
        (("training.batch_size=16:32.5",), ("--sampler", "tpe"), "has integers for its ends"),
        (
            ("training.label_smoothing=0:2",),
            ("--sampler", "tpe"),
            "training.label_smoothing must be from 0 to 1",
        ),
        (
            ("seed=1",),
            ("--metric", "test_eror"),
            "no line of metrics has 'test_eror'. Did you mean test_error",
        ),
        (("seed=1",), ("--metric", "test_top5_error"), "the runs of this recipe have none"),
        (("seed=1",), ("--trials", "0"), "--trials must be an integer of 1 or more, found 0"),
        (("seed=1",), ("--device", "cuda:99"), "no device 'cuda:99'"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(
    space: tuple[str, ...], more: tuple[str, ...], message: str, sweep: Sweep
) -> None:
    status, _, err = sweep(*space, more=more)
    assert status == 1
    (line,) = (line for line in err.splitlines() if not line.startswith("epoch"))
    assert message in line
    trials = list(Path("runs").rglob("config.json"))
    assert len(trials) == (1 if "test_top5_error" in more else 0)


def test_combinations_are_checked_too() -> None:
    with pytest.raises(RecipeError, match="'plain' has no rho"):
        space_of(Config(), ["objective.name=sam,plain", "objective.rho=0.05,0.1"])


@pytest.mark.parametrize(
    "config", [tiny(), tiny_semi(), tiny_fixmatch(), tiny_simclr()], ids=lambda c: c.task
)
def test_the_names_of_metrics_are_known(config: Config, tmp_path: Path) -> None:
    train(RunFolder(tmp_path), config, device="cpu")
    names = {name for line in RunFolder(tmp_path).metrics() for name in line}
    assert names - {"timing"} <= set(METRICS)


def test_a_search_that_proposes_what_another_process_makes_ends(sweep: Sweep) -> None:
    status, out, _ = sweep("seed=1", more=("--sampler", "tpe", "--trials", "1"))
    assert status == 0
    folder = Path(out.splitlines()[0].split()[-1])
    (folder / "summary.json").unlink()
    with exclusive(folder):
        status, _, err = sweep("seed=1", more=("--sampler", "tpe", "--trials", "2"))
    assert status == 1
    assert "is being made by another process" in err.splitlines()[-1]


def test_a_value_inside_a_range_that_cannot_be_is_left_out(sweep: Sweep) -> None:
    settings = (*FAST, "training.accumulate=2")
    more = ("--sampler", "tpe", "--trials", "6")
    status, out, err = sweep("training.batch_size=16:64", more=more, settings=settings)
    assert status == 0
    assert "training.accumulate must divide the batch of" in err
    assert "Traceback" not in err
    made, left_out = out.count("training.batch_size="), err.count("must divide")
    assert made - 1 + left_out == 6  # the last line names the best
