"""What the values of a config may be, beyond their types: asked of every config before anything is begun."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from iam_lab.errors import RecipeError
from iam_lab.recipes.few_labels import reads
from iam_lab.recipes.schema import Config


@dataclass(frozen=True)
class Rule:
    """What a value is, in words and as a question."""

    words: str
    holds: Callable[[Any], bool]


def count(least: int) -> Rule:
    """An integer from ``least`` on.

    >>> count(1).words, count(1).holds(0)
    ('an integer of 1 or more', False)
    """
    return Rule(f"an integer of {least} or more", lambda value: value >= least)


ABOVE_ZERO = Rule("a finite number above 0", lambda value: math.isfinite(value) and value > 0)
ZERO_OR_MORE = Rule("a finite number of 0 or more", lambda value: math.isfinite(value) and value >= 0)
PART = Rule("a share of 0 or more and below 1", lambda value: 0 <= value < 1)
SHARE = Rule("from 0 to 1", lambda value: 0 <= value <= 1)
SOME_OR_ALL = Rule("an integer of 1 or more, or -1 for all", lambda value: value >= 1 or value == -1)
NONE_SOME_OR_ALL = Rule("an integer of 0 or more, or -1 for all", lambda value: value >= -1)
WIDTHS = Rule("one or more integers above 0, such as 512 128", lambda value: bool(value) and min(value) >= 1)

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "data.validation": PART,
        "data.train_images": count(1),
        "data.image_size": count(1),
        "data.workers": count(0),
        "objective.rho": ABOVE_ZERO,
        "objective.beta": ZERO_OR_MORE,
        "objective.steps": count(0),
        "objective.eta": ZERO_OR_MORE,
        "objective.sub_batch": count(1),
        "optimizer.lr": ZERO_OR_MORE,
        "optimizer.weight_decay": ZERO_OR_MORE,
        "schedule.gamma": ZERO_OR_MORE,
        "schedule.warmup_steps": count(0),
        "schedule.final": ZERO_OR_MORE,
        "training.epochs": count(1),
        "training.steps": count(1),
        "training.steps_per_epoch": count(1),
        "training.batch_size": count(1),
        "training.label_smoothing": SHARE,
        "training.clip_norm": ABOVE_ZERO,
        "training.accumulate": count(1),
        "training.ema": PART,
        "training.patience": count(1),
        "evaluation.every": count(1),
        "evaluation.batch_size": count(1),
        "evaluation.train_images": NONE_SOME_OR_ALL,
        "measurement.every": count(0),
        "measurement.images": SOME_OR_ALL,
        "measurement.rho": ABOVE_ZERO,
        "measurement.steps": count(1),
        "measurement.restarts": count(1),
        "measurement.tolerance": ABOVE_ZERO,
        "measurement.batch_size": count(1),
        "semi.batch_size": count(1),
        "fixmatch.threshold": SHARE,
        "fixmatch.weight": ZERO_OR_MORE,
        "fixmatch.halve_rho_after": count(1),
        "simclr.temperature": ABOVE_ZERO,
        "simclr.projector": WIDTHS,
        "probe.epochs": count(1),
        "probe.batch_size": count(1),
        "probe.lr": ABOVE_ZERO,
        "probe.weight_decay": ZERO_OR_MORE,
    }
)
"""Field to its rule; None, where a field may be that, is always right."""

_READ = {path: attrgetter(path) for path in RULES}


def check_values(config: Config) -> None:
    """Refuse a config with a value that cannot be, of those that its task looks at.

    >>> from iam_lab.recipes.typed import replaced
    >>> check_values(replaced(Config(), "measurement.restarts", 0))
    Traceback (most recent call last):
        ...
    iam_lab.errors.RecipeError: measurement.restarts must be an integer of 1 or more, found 0.
    """
    for path, rule in RULES.items():
        value = _READ[path](config)
        if value is not None and reads(config.task, path) and not rule.holds(value):
            raise RecipeError(f"{path} must be {rule.words}, found {value!r}.")
    _check_milestones(config)
    _check_parts(config)
    if config.measurement.every and config.measurement.split == "validation" and not config.data.validation:
        raise RecipeError(
            "measurement.split: There are no validation images: set data.validation, the share of the training "
            "images held out."
        )


def _check_milestones(config: Config) -> None:
    """Everybody else's milestones are epochs, so that these are what is written by mistake."""
    found = config.schedule.milestones
    if all(0 < share < 1 for share in found) and all(one < two for one, two in pairwise(found)):
        return
    epochs = config.training.epochs
    told = ", found " + (" ".join(f"{share:g}" for share in found)) + "."
    if config.training.steps is None and all(0 < epoch < epochs for epoch in found) and max(found) >= 1:
        shares = " ".join(f"{epoch / epochs:g}" for epoch in sorted(found))
        told += f" For these epochs of {epochs} write {shares}."
    raise RecipeError(f"schedule.milestones must be rising shares of the training, between 0 and 1{told}")


def _check_parts(config: Config) -> None:
    """Sizes that divide a batch."""
    training, sub_batch = config.training, config.objective.sub_batch
    if training.batch_size % training.accumulate:
        raise RecipeError(
            f"training.accumulate must divide the batch of {training.batch_size}, found {training.accumulate}."
        )
    part = training.batch_size // training.accumulate
    if sub_batch is not None and part % sub_batch:
        of = f"{part}, training.batch_size / training.accumulate" if training.accumulate > 1 else str(part)
        raise RecipeError(f"objective.sub_batch must divide the batch of {of}, found {sub_batch}.")
