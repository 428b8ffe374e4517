"""Configs that train in a fraction of a second, with everything in them that a resumed run must bring back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iam_lab.recipes.few_labels import FixMatch, Probe, SemiSupervised, SimCLR
from iam_lab.recipes.schema import (
    Config,
    Data,
    Evaluation,
    Measurement,
    Model,
    Objective,
    Optimizer,
    Schedule,
    Training,
)
from iam_lab.recipes.typed import updated


def tiny(**changes: Any) -> Config:
    """BatchNorm, Dropout, a carried direction, momentum, an average, a validation split, measurements.

    Keyword arguments change fields: ``tiny(training__epochs=2)``.
    """
    config = Config(
        model=Model("wrn-10-1", {"dropout": 0.2}),
        data=Data("digits", augment="crop-flip", validation=0.1, train_images=72),
        objective=Objective("iam-d", rho=0.1, beta=1.0, options={"start": "carry"}),
        optimizer=Optimizer(lr=0.05),
        schedule=Schedule("cosine", warmup_steps=2),
        training=Training(epochs=4, batch_size=24, ema=0.5),
        evaluation=Evaluation(batch_size=360),
        measurement=Measurement(every=2, images=16, steps=1, restarts=1, fisher=False),
        seed=3,
    )
    return updated(config, {path.replace("__", "."): value for path, value in changes.items()})


def tiny_semi(**changes: Any) -> Config:
    """The same with 20 labels of 120 images; 6 labelled images and 12 without a label a step."""
    config = tiny(data__train_images=120, training__epochs=2, training__batch_size=6, measurement__every=0)
    config = replace(config, task="semi-supervised", semi=SemiSupervised(labels=20, batch_size=12))
    return updated(config, {path.replace("__", "."): value for path, value in changes.items()})


def tiny_fixmatch(**changes: Any) -> Config:
    """The same with a weak and a strong view of the images without a label, most of which get one."""
    config = tiny_semi(semi__include_labelled=True, data__augment="weak", schedule__name="cosine-7-16")
    config = replace(config, task="fixmatch", fixmatch=FixMatch(threshold=0.2))
    return updated(config, {path.replace("__", "."): value for path, value in changes.items()})


def tiny_simclr(**changes: Any) -> Config:
    """Two views of 24 images a step, a small projector, and a probe at every second epoch."""
    config = tiny(
        training__ema=None,
        training__label_smoothing=0.0,
        data__augment="crop-strong",
        measurement__fisher=True,
    )
    config = replace(
        config,
        task="simclr",
        simclr=SimCLR(projector=(16, 8)),
        probe=Probe(epochs=2, batch_size=32),
        evaluation=replace(config.evaluation, every=2),
    )
    return updated(config, {path.replace("__", "."): value for path, value in changes.items()})
