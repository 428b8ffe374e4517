"""``iam sweep RECIPE --space objective.rho=0.05,0.1 optimizer.lr=log:0.01:0.3``."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from iam_lab.commands.jobs import Job, devices_here, run_one
from iam_lab.commands.parsing import changed, parsed, value_of
from iam_lab.errors import Interrupted, LabError, RecipeError, RunError
from iam_lab.lazy import require
from iam_lab.recipes.few_labels import refuse_unread
from iam_lab.recipes.registry import find_recipe
from iam_lab.recipes.schema import Recipe
from iam_lab.recipes.typed import changes, updated
from iam_lab.runs.environment import environment
from iam_lab.runs.files import write_json
from iam_lab.runs.naming import folder_of

HEARTBEAT = 60
"""Seconds after which a trial of a machine that is silent is given to another one."""


@dataclass(frozen=True)
class Range:
    """What a field may be: one of ``choices``, or a number between ``low`` and ``high``."""

    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False


def range_of(text: str) -> Range:
    """``0.05,0.1`` are choices, ``0.1:1`` is uniform, ``log:0.01:1`` uniform in the logarithm.

    >>> range_of("0.05,0.1").choices, range_of("log:0.01:1").high
    ((0.05, 0.1), 1.0)
    """
    kind, colon, rest = text.partition(":")
    if not colon:
        return Range(choices=tuple(value_of(part) for part in text.split(",")))
    low, _, high = (rest if kind == "log" else text).partition(":")
    try:
        found = Range(low=float(low), high=float(high), log=kind == "log")
    except ValueError as error:
        raise RecipeError(f"A range is LOW:HIGH or log:LOW:HIGH, found {text!r}.") from error
    if found.low >= found.high or (found.log and found.low <= 0):
        raise RecipeError(f"A range goes upwards, one in the logarithm from above 0; found {text!r}.")
    return found


def space_of(recipe: Recipe, settings: Sequence[str]) -> dict[str, Range]:
    """Field to range, each checked against the recipe's types."""
    space = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise RecipeError(
                f"A range is written FIELD=RANGE, as in objective.rho=0.05,0.1; found {setting!r}."
            )
        space[path] = range_of(text)
    if not space:
        raise RecipeError("--space names the fields to search, as in --space objective.rho=0.05,0.1.")
    # The first point, so that a wrong name or type is an error now, not in a trial.
    updated(recipe.config, {path: r.choices[0] if r.choices else r.low for path, r in space.items()})
    return space


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
    to ROOT/sweep-RECIPE-seedSEED.json.

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
    base = find_recipe(recipe)
    fixed = Recipe(base.name, changed(base.config, [*set, f"seed={seed}"]))
    ranges = space_of(fixed, space)
    for task in ranges["task"].choices if "task" in ranges else (fixed.config.task,):
        # By name, before any trial: one whose value is the recipe's own has changed nothing yet.
        refuse_unread(task, [*changes(base.config, fixed.config), *ranges])
    target = metric or ("validation_error" if fixed.config.data.validation else "test_error")
    optuna = require("optuna", extra="sweep", purpose="iam sweep")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    root.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name=name or f"{recipe}: {', '.join([*space, *set])}; {sampler}, seed {seed}",
        storage=_storage(optuna, storage or f"sqlite:///{root}/sweeps.db"),
        sampler=_sampler(optuna, sampler, ranges, seed),
        direction="minimize",
        load_if_exists=True,
    )
    where = devices_here()[0] if device == "auto" else device

    def objective(trial: Any) -> float:
        values = {path: _suggested(trial, path, ranges[path]) for path in ranges}
        job = _job(base, fixed, values, root)
        trial.set_user_attr("folder", str(job.path))
        try:
            summary = run_one(job, where)
        except RunError as error:  # diverged, most likely: the search goes on without it
            sys.stderr.write(f"{error}\n")
            raise optuna.TrialPruned(str(error)) from error
        reached = _reached(summary, target)
        told = ", ".join(f"{path}={value}" for path, value in values.items())
        sys.stdout.write(f"{told}: {target} {reached:.3f}   {job.path}\n")
        return reached

    _optimize(optuna, study, objective, _left(study, sampler, ranges, trials))
    if not [trial for trial in study.trials if trial.value is not None]:
        raise LabError("No trial came to its end.")
    _write(root / f"sweep-{name or recipe}-seed{seed}.json", study, target, environment(where))
    best = study.best_trial
    told = ", ".join(f"{path}={value}" for path, value in best.params.items())
    sys.stdout.write(f"best of {len(study.trials)}: {told}: {target} {best.value:.3f}\n")
    return 0


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
            raise LabError(f"The storage {url} does not open: {str(error).splitlines()[0]}") from error


def _sampler(optuna: Any, name: str, ranges: Mapping[str, Range], seed: int) -> Any:
    if name == "tpe":
        return optuna.samplers.TPESampler(seed=seed)
    for path, found in ranges.items():
        if not found.choices:
            raise RecipeError(
                f"A grid needs choices, {path} has a range: use --sampler tpe, or a list a,b,c."
            )
    return optuna.samplers.GridSampler({path: list(r.choices) for path, r in ranges.items()}, seed=seed)


def _suggested(trial: Any, path: str, found: Range) -> Any:
    if found.choices:
        return trial.suggest_categorical(path, list(found.choices))
    return trial.suggest_float(path, found.low, found.high, log=found.log)


def _left(study: Any, sampler: str, ranges: Mapping[str, Range], trials: int | None) -> int:
    """How many trials are to be made, those of earlier calls counted."""
    points = math.prod(len(found.choices) for found in ranges.values())
    wanted = trials or (points if sampler == "grid" else 20)
    return max(0, wanted - sum(trial.state.name in ("COMPLETE", "PRUNED") for trial in study.trials))


def _job(base: Recipe, fixed: Recipe, values: Mapping[str, Any], root: Path) -> Job:
    config = updated(fixed.config, values)
    told = changes(base.config, config)
    return Job(base.name, config, told, folder_of(root, base.name, config.seed, told))


def _reached(summary: Mapping[str, Any], metric: str) -> float:
    """The metric in the epoch that the run is judged by: the selected one, or else the best, or the last."""
    for key in ("selected", "best", "last"):
        line = summary.get(key)
        if line and line.get(metric) is not None:
            return float(line[metric])
    raise RecipeError(f"--metric {metric}: the runs of this recipe have none; see their metrics.jsonl.")


def _write(path: Path, study: Any, metric: str, around: Mapping[str, Any]) -> None:
    done = sorted((trial for trial in study.trials if trial.value is not None), key=lambda trial: trial.value)
    trials = [
        {"values": trial.params, metric: trial.value, "folder": trial.user_attrs["folder"]} for trial in done
    ]
    write_json(path, {"environment": around, "study": study.study_name, "metric": metric, "trials": trials})
    sys.stdout.write(f"written: {path}\n")


def _optimize(optuna: Any, study: Any, objective: Any, trials: int) -> None:
    if trials == 0:
        return
    try:
        study.optimize(objective, n_trials=trials)
    except Interrupted:
        # The run is saved in its folder: the next call takes the same values up first.
        study.enqueue_trial(study.trials[-1].params)
        raise


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    status: int = parsed(sweep, "sweep", arguments)
    return status
