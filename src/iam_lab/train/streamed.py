"""Data that streams from files: the same three things as in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from iam_lab.data import DataSpec, Stream, open_source
from iam_lab.errors import RecipeError
from iam_lab.recipes.schema import Config
from iam_lab.train.data import Held, RunData
from iam_lab.train.numerics import seed_for

STREAMED = "resized-crop-flip"
"""The one training augmentation of streamed data."""


def build_streamed(config: Config, spec: DataSpec, device: torch.device) -> RunData:
    """Training batches decoded by workers, and the centre of every test image."""
    data, training = config.data, config.training
    for given, name in ((data.validation, "validation"), (data.train_images, "train_images")):
        if given:
            raise RecipeError(
                f"data.{name} is for data in memory; {spec.name} streams from files. Leave it out."
            )
    if data.augment != STREAMED:
        raise RecipeError(f"data.augment must be {STREAMED!r} for {spec.name}, found {data.augment!r}.")
    spec = replace(spec, image_size=data.image_size or spec.image_size)
    sources = {split: open_source(spec, split) for split in ("train", "test")}

    def stream(split: str, *, train: bool, batch_size: int, seed: int = 0) -> Stream:
        return Stream(
            sources[split],
            spec,
            batch_size,
            train=train,
            seed=seed,
            workers=data.workers,
            device=device,
            channels_last=training.channels_last,
        )

    def looked_at(split: str) -> Callable[[], Iterator[tuple[Tensor, Tensor]]]:
        made: list[Stream] = []  # with the first use, because of its workers

        def batches() -> Iterator[tuple[Tensor, Tensor]]:
            if not made:
                made.append(stream(split, train=False, batch_size=config.evaluation.batch_size))
            made[0].epoch = made[0].samples = 0  # an evaluation may have been broken off
            return iter(made[0])

        return batches

    part = training.batch_size // training.accumulate
    return RunData(
        spec=spec,
        image_size=spec.image_size,
        train=stream("train", train=True, batch_size=part, seed=seed_for(config.seed, "data")),
        held={split: Held(split, looked_at(split), len(source)) for split, source in sources.items()},
    )
