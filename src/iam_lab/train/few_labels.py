"""Two streams of batches over one training set: a few images with labels, many without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import torch
from torch import Generator, Tensor

from iam_lab.data import (
    DataError,
    DeviceData,
    ImageSet,
    hold_out,
    labelled_subset,
    load,
    unlabelled_subset,
)
from iam_lab.errors import RecipeError
from iam_lab.recipes.schema import Config
from iam_lab.train.data import HELD_OUT_SEED, RunData, build_data
from iam_lab.train.numerics import seed_for
from iam_lab.train.objectives import CLASSES


@dataclass(frozen=True)
class PairedBatches:
    """Batches ``((images, unlabelled), labels)``; each of the two streams has epochs and draws of its own.

    An epoch is a pass over the images without labels. The labelled ones may be fewer than a batch: theirs go
    on over the end of a pass.

    Attributes:
        labelled: images and labels.
        unlabelled: images whose labels nobody looks at, in as many views as their augmentation makes.
        chosen: the indices of the labelled images in the training set as it is stored.
        joined: whether images without labels are in the batches at all; where nothing would look at them
            they are neither drawn nor augmented, and None stands in their place.
    """

    labelled: DeviceData[Tensor]
    unlabelled: DeviceData[Any]
    chosen: Tensor
    joined: bool = True

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.unlabelled)

    def forever(self) -> Iterator[tuple[Any, Tensor]]:
        """Batches of this epoch and all that follow."""
        without = self.unlabelled.forever() if self.joined else repeat((None, None))
        for (images, labels), (views, _) in zip(self.labelled.forever(), without, strict=True):
            yield (images, views), labels

    def state_dict(self) -> dict[str, Any]:
        """Where both streams are, and which images have labels."""
        return {
            "labelled": self.labelled.state_dict(),
            "unlabelled": self.unlabelled.state_dict(),
            "chosen": self.chosen.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there, if the labels are those of the same images."""
        if not torch.equal(state["chosen"].cpu(), self.chosen):
            raise DataError(
                f"The saved run of {self.labelled.data.name} has labels for other images than are drawn now: "
                "the data has changed since it began. Resume with the same data."
            )
        self.labelled.load_state_dict(state["labelled"])
        self.unlabelled.load_state_dict(state["unlabelled"])


def few_labels(
    config: Config,
    device: torch.device,
    unlabelled_views: Callable[[RunData], Callable[..., Any]] | None = None,
) -> tuple[RunData, PairedBatches]:
    """The data of a config with few labels.

    Args:
        config: whose ``semi`` says how many labels there are.
        device: where the data lies.
        unlabelled_views: given the data, what augments images without labels; by default what augments the
            labelled ones.

    Returns:
        The data, whose training batches are the second.
    """
    semi, parts = config.semi, config.training.accumulate
    if semi.labels is None:
        raise RecipeError(
            f"semi.labels is missing: the task {config.task!r} needs the number of labelled images."
        )
    data = build_data(config, device)
    images, augment = in_memory(data)
    if semi.batch_size % parts:
        raise RecipeError(
            f"semi.batch_size must be divisible by training.accumulate {parts}, found {semi.batch_size}."
        )
    seed = seed_for(config.seed, "labels")
    try:
        chosen = labelled_subset(images.labels, semi.labels, images.classes, seed)
    except DataError as error:
        raise DataError(f"semi.labels: {error}") from error
    if len(chosen) == len(images) and not semi.include_labelled:
        raise RecipeError(
            f"semi.labels: no image is left without a label: all {len(images)} are labelled. Take fewer, or set "
            "semi.include_labelled, which uses the labelled images without their labels as well."
        )
    others = unlabelled_subset(len(images), chosen, include_labelled=semi.include_labelled)
    if semi.batch_size // parts > len(others):
        raise RecipeError(
            f"semi.batch_size: there are {len(others)} images to use without their labels, which do not fill one "
            f"batch of {semi.batch_size // parts}. Choose at most {len(others) * parts}."
        )
    batches = PairedBatches(
        DeviceData(
            _named(images.subset(chosen), "with labels"),
            config.training.batch_size // parts,
            augment,
            seed=seed_for(config.seed, "labelled data"),
            over_ends=True,
        ),
        DeviceData(
            _named(images.subset(others), "without labels"),
            semi.batch_size // parts,
            augment if unlabelled_views is None else unlabelled_views(data),
            seed=seed_for(config.seed, "unlabelled data"),
        ),
        stored_at(config, data)[chosen],
        joined=uses_unlabelled(config),
    )
    return replace(data, train=batches), batches


def uses_unlabelled(config: Config) -> bool:
    """Whether anything in a step looks at images without labels: the objective, or FixMatch.

    >>> uses_unlabelled(Config(task="semi-supervised")), uses_unlabelled(Config(task="fixmatch"))
    (False, True)
    """
    return config.task == "fixmatch" or bool(CLASSES[config.objective.name].uses_unlabeled)


def stored_at(config: Config, data: RunData) -> Tensor:
    """Where each training image of a run is in the training set as it is stored, int64 ``[N]``.

    That is before ``data.validation`` and ``data.train_images``: an index that means the same image to every
    run, and to somebody who opens the files.
    """
    count = len(in_memory(data)[0])
    if not config.data.validation:
        return torch.arange(count)
    if config.data.train_images is None:
        total = count + data.held["validation"].size
    else:
        total = len(load(config.data.name, "train"))
    return hold_out(total, config.data.validation, HELD_OUT_SEED)[0][:count]


def in_memory(data: RunData) -> tuple[ImageSet, Callable[[Tensor, Generator], Tensor]]:
    """The training images, and what augments them.

    Raises:
        RecipeError: they stream from files.
    """
    if not isinstance(data.train, DeviceData):
        raise RecipeError(
            f"data.name: {data.spec.name} streams from files; learning with few labels or without any needs "
            "data that fits into memory."
        )
    return data.train.data, data.train.augment


def _named(images: ImageSet, what: str) -> ImageSet:
    return replace(images, name=f"{images.name}, images {what}")
