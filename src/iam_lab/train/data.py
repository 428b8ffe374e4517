"""The data of a run: training batches, and the images that judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from iam_lab.data import DataSpec, DeviceData, ImageSet, hold_out, load, spec_of
from iam_lab.data.augment import build_augment
from iam_lab.errors import RecipeError
from iam_lab.recipes.ranges import check_values
from iam_lab.recipes.schema import Config
from iam_lab.train.numerics import field, seed_for

HELD_OUT_SEED = 0
"""All seeds of a recipe validate on the same images."""


class Batches(Protocol):
    """Training batches that continue where they were."""

    def __len__(self) -> int:
        """Batches of an epoch."""

    def forever(self) -> Iterator[tuple[Any, Tensor]]:
        """Batches of this epoch and all that follow."""

    def state_dict(self) -> dict[str, Any]:
        """Where the data is."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""


@dataclass(frozen=True)
class Held:
    """Images that are only looked at, in batches ``(images, labels)``, always the same ones.

    Attributes:
        split: what they are called in the metrics.
        batches: gives them anew at each call.
        size: how many images there are.
    """

    split: str
    batches: Callable[[], Iterator[tuple[Tensor, Tensor]]]
    size: int


@dataclass(frozen=True)
class RunData:
    """What a config's data fields stand for."""

    spec: DataSpec
    image_size: int
    train: Batches
    held: dict[str, Held]

    def first(self, split: str, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of the first ``count`` images of a split; -1 for all."""
        if split not in self.held:
            raise RecipeError(
                f"There are no {split} images: set data.validation, the share of the training images held out."
            )
        left = self.held[split].size if count < 0 else count
        for images, labels in self.held[split].batches():
            if left <= 0:
                return
            yield images[:left], labels[:left]
            left -= len(images)


@dataclass(frozen=True)
class Scaled:
    """Augmentation, then another size, bicubic and without aliasing."""

    augment: Callable[[Tensor, Generator], Tensor]
    size: int

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Augmented images ``[B, C, size, size]``."""
        small = self.augment(images, generator)
        return F.interpolate(small, size=(self.size, self.size), mode="bicubic", antialias=True)


def build_data(config: Config, device: torch.device) -> RunData:
    """Read the data set of a config and bring it to the device."""
    check_values(config)
    spec = spec_of(config.data.name)
    if spec.streamed:
        from iam_lab.train.streamed import build_streamed

        return build_streamed(config, spec, device)
    return _in_memory(config, spec, device)


def augmentation(config: Config, spec: DataSpec, name: str) -> Callable[[Tensor, Generator], Tensor]:
    """The augmentation called ``name``, at the size that the model sees."""
    pipeline = build_augment(name, spec, channels_last=config.training.channels_last)
    size = config.data.image_size
    return pipeline if size in (None, spec.image_size) else Scaled(pipeline, int(size or 0))


def _in_memory(config: Config, spec: DataSpec, device: torch.device) -> RunData:
    full, held = load(spec.name, "train"), {"test": load(spec.name, "test")}
    train = full
    if config.data.validation:
        kept, validating = hold_out(len(full), config.data.validation, HELD_OUT_SEED)
        train, held["validation"] = full.subset(kept), full.subset(validating)
    if config.data.train_images is not None:
        train = _first(train, config.data.train_images)
    held["train"] = train
    with field("data.augment"):
        augment = augmentation(config, spec, config.data.augment)
    on_device = {split: images.to(device) for split, images in held.items()}
    plain = augmentation(config, spec, "none")
    part = config.training.batch_size // config.training.accumulate
    few_labels = config.task in ("semi-supervised", "fixmatch")  # whose labelled batches go on over the ends
    if part > len(train) and not few_labels:
        raise RecipeError(
            f"training.batch_size: {train.name} has {len(train)} images to train on, which do not fill one batch "
            f"of {part}. Choose at most {len(train) * config.training.accumulate}."
        )
    batches = DeviceData(
        on_device["train"],
        part,
        augment,
        seed=seed_for(config.seed, "data"),
        over_ends=few_labels,
    )
    return RunData(
        spec=spec,
        image_size=config.data.image_size or spec.image_size,
        train=batches,
        held={
            split: _held(split, images, plain, config.evaluation.batch_size)
            for split, images in on_device.items()
        },
    )


def _held(
    split: str, images: ImageSet, plain: Callable[[Tensor, Generator], Tensor], batch_size: int
) -> Held:
    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        # Anew each time: an evaluation that was broken off must not shorten the next one.
        return iter(DeviceData(images, batch_size, plain, shuffle=False, drop_last=False))

    return Held(split, batches, len(images))


def _first(images: ImageSet, count: int) -> ImageSet:
    if count > len(images):
        raise RecipeError(f"data.train_images must be from 1 to {len(images)}, found {count}.")
    return images.subset(torch.arange(count))
