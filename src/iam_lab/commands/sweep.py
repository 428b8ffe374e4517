"""``iam sweep RECIPE --space objective.rho=0.05,0.1 optimizer.lr=log:0.01:0.3``."""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from iam_lab.commands.jobs import Job, run_one
from iam_lab.commands.parsing import at_least_one, changed, parsed
from iam_lab.commands.space import grid_of, space_of
from iam_lab.errors import Interrupted, LabError, RecipeError, first_line
from iam_lab.lazy import require
from iam_lab.recipes.few_labels import refuse_unread
from iam_lab.recipes.ranges import check_values
from iam_lab.recipes.registry import find_recipe
from iam_lab.recipes.schema import Recipe
from iam_lab.recipes.typed import changes, updated
from iam_lab.runs.environment import environment
from iam_lab.runs.files import write_json
from iam_lab.runs.lock import BusyError
from iam_lab.runs.metrics import METRICS
from iam_lab.runs.naming import folder_of

TRIALS = 20
"""Of TPE, where no number is given."""

HEARTBEAT = 60
"""Seconds after which a trial of a machine that is silent is given to another one."""


def sweep(
    recipe: Annotated[str, tyro.conf.Positional],
    space: tuple[str, ...] = (),
    sampler: Literal["grid", "tpe"] = "grid",
    trials: int | None = None,
    metric: str | None = None,
    name: str | None = None,
    storage: str | None = None,
    root: Path = Path("runs"),
    device: str = "auto",
    seed: int = 0,
    set: tuple[str, ...] = (),
) -> int:
    """Search fields of a recipe; the same command continues, on many machines with a common storage.

    Every trial is a run like any other, in a folder named after its values. Writes all of them, the best first,
    to ROOT/sweep-RECIPE-DIGEST-seedSEED.json; the digest is that of the study's name.

    Args:
        recipe: its name.
        space: ranges of fields: objective.rho=0.05,0.1 (choices), optimizer.lr=log:0.01:0.3, a.b=0:1.
        sampler: every point of a grid of choices, or TPE, which learns from the trials before.
        trials: how many runs; by default the whole grid, or 20 for TPE.
        metric: of metrics.jsonl, least is best; by default validation_error where there is a split.
        name: of the study; by default made of recipe, ranges, sampler and seed: with others it is a new one.
        storage: any optuna storage URL, such as postgresql://...; by default SQLite in ROOT.
        root: folder of all runs.
        device: auto, cpu, cuda:0, ...
        seed: of the runs, and of TPE.
        set: fix other fields, as in --set training.epochs=24.
    """
    from iam_lab.train.numerics import device_of
    from iam_lab.train.trainer import DivergedError

    at_least_one("--trials", trials)
    base = find_recipe(recipe)
    fixed = Recipe(base.name, changed(base.config, [*set, f"seed={seed}"]))
    ranges = space_of(fixed.config, space)
    for task in ranges["task"].choices if "task" in ranges else (fixed.config.task,):
        # By name, before any trial: one whose value is the recipe's own has changed nothing yet.
        refuse_unread(task, [*changes(base.config, fixed.config), *ranges])
    target = metric or ("validation_error" if fixed.config.data.validation else "test_error")
    _check_metric(target)
    points = grid_of(ranges) if sampler == "grid" else None
    study_name = name or f"{recipe}: {', '.join([*space, *set])}; {sampler}, seed {seed}"
    optuna = require("optuna", extra="sweep", purpose="iam sweep")
    root.mkdir(parents=True, exist_ok=True)
    study = _study(optuna, study_name, storage or f"sqlite:///{root}/sweeps.db", sampler, seed)
    where = str(device_of(device))
    trying: dict[str, Any] = {}
    busy: list[Path] = []

    def objective(trial: Any) -> float:
        trying.clear()
        trying.update({path: found.suggested(trial, path) for path, found in ranges.items()})
        job = _job(base, fixed, trying, root)
        trial.set_user_attr("folder", str(job.path))
        try:
            check_values(job.config)
        except RecipeError as error:  # inside a range, where only the ends were looked at before
            sys.stderr.write(f"{_in_words(trying)}: {error}\n")
            raise optuna.TrialPruned(str(error)) from error
        try:
            reached = _reached(run_one(job, where), target)
        except BusyError:
            if job.path in busy and points is None:
                raise LabError(
                    f"{job.path} is being made by another process, and the search proposes it again. Run the same "
                    "command later to continue."
                ) from None
            busy.append(job.path)
            raise
        except DivergedError as error:  # the search goes on without it
            sys.stderr.write(f"{job.path}: {error}\n")
            raise optuna.TrialPruned(str(error)) from error
        if reached is None:
            raise optuna.TrialPruned(f"{target} is not finite")
        sys.stdout.write(f"{_in_words(trying)}: {target} {reached:.3f}   {job.path}\n")
        return reached

    try:
        for point in due(study, points, trials or (len(points) if points else TRIALS)):
            if point is not None:
                study.enqueue_trial(point)
            study.optimize(objective, n_trials=1, catch=(BusyError,))
    except Interrupted:
        study.enqueue_trial(dict(trying))  # its run is saved: the next call goes on with it
        raise
    if not [trial for trial in study.trials if trial.value is not None]:
        raise LabError("No trial came to its end.")
    label = name or f"{recipe}-{hashlib.sha256(study_name.encode()).hexdigest()[:8]}"
    _write(root / f"sweep-{label}-seed{seed}.json", study, target, environment(where))
    best = study.best_trial
    done = sum(trial.value is not None for trial in study.trials)
    sys.stdout.write(f"best of {done}: {_in_words(best.params)}: {target} {best.value:.3f}\n")
    return 0


def due(
    study: Any, points: Sequence[Mapping[str, Any]] | None, wanted: int
) -> Iterator[dict[str, Any] | None]:
    """What to try next, until there are results of ``wanted`` trials, those of earlier calls and others counted.

    Args:
        study: where all machines write what they do.
        points: of a grid: each is tried once, first those that nobody is at; None without a grid.
        wanted: how many results.

    Yields:
        A point of the grid; None for what waits in the study already, or what the sampler proposes.
    """
    tried: list[Mapping[str, Any]] = []
    while True:
        results = _values(study, "COMPLETE", "PRUNED")
        if points is not None:
            results = [point for point in points if point in results]
        if len(results) >= wanted:
            return
        if points is None or _values(study, "WAITING"):
            yield None
            continue
        left = [point for point in points if point not in results and point not in tried]
        if not left:
            return
        busy = _values(study, "RUNNING")
        tried.append(next((point for point in left if point not in busy), left[0]))
        yield dict(tried[-1])


def _values(study: Any, *states: str) -> list[Mapping[str, Any]]:
    """The values of the trials in these states; one that waits has them as a wish."""
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in states]
    return [trial.params or trial.system_attrs.get("fixed_params", {}) for trial in trials]


def _study(optuna: Any, name: str, url: str, sampler: str, seed: int) -> Any:
    """The study, new or begun; optuna says nothing of its own, our errors are whole."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = optuna.samplers
    return optuna.create_study(
        study_name=name,
        storage=_storage(optuna, url),
        sampler=samplers.TPESampler(seed=seed) if sampler == "tpe" else samplers.RandomSampler(seed),
        direction="minimize",
        load_if_exists=True,
    )


def _storage(optuna: Any, url: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        try:
            return optuna.storages.RDBStorage(
                url,
                heartbeat_interval=HEARTBEAT,
                heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(),
            )
        except Exception as error:  # of whatever database it is
            raise LabError(f"The storage {url} does not open: {first_line(error)}") from error


def _check_metric(name: str) -> None:
    if name not in METRICS:
        near = get_close_matches(name, METRICS, n=3)
        hint = f"Did you mean {', '.join(near)}?" if near else f"There are {', '.join(METRICS)}."
        raise RecipeError(f"--metric: no line of metrics has {name!r}. {hint}")


def _job(base: Recipe, fixed: Recipe, values: Mapping[str, Any], root: Path) -> Job:
    config = updated(fixed.config, values)
    told = changes(base.config, config)
    return Job(base.name, config, told, folder_of(root, base.name, config.seed, told))


def _reached(summary: Mapping[str, Any], metric: str) -> float | None:
    """The metric in the epoch that the run is judged by: the selected one, or else the best, or the last."""
    lines = [summary[key] for key in ("selected", "best", "last") if summary.get(key)]
    for line in lines:
        if line.get(metric) is not None:
            return float(line[metric])
    if any(metric in line for line in lines):
        return None  # of a training about to diverge
    raise RecipeError(f"--metric {metric}: the runs of this recipe have none; see their metrics.jsonl.")


def _write(path: Path, study: Any, metric: str, around: Mapping[str, Any]) -> None:
    done = sorted((trial for trial in study.trials if trial.value is not None), key=lambda trial: trial.value)
    trials = [
        {"values": trial.params, metric: trial.value, "folder": trial.user_attrs["folder"]} for trial in done
    ]
    write_json(path, {"environment": around, "study": study.study_name, "metric": metric, "trials": trials})
    sys.stdout.write(f"written: {path}\n")


def _in_words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{path}={value}" for path, value in values.items())


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    status: int = parsed(sweep, "sweep", arguments)
    return status
