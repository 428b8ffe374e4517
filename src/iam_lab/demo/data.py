"""The digits, shared out: a pool to learn from, images to choose hyper-parameters by, images to test on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from iam_lab.data.catalogue import spec_of
from iam_lab.data.image_set import load
from iam_lab.data.splits import hold_out, labelled_subset, unlabelled_subset

LABELS = 100
VALIDATION = 437

Part: TypeAlias = Literal["validation", "test"]


@dataclass(frozen=True)
class Digits:
    """What one run sees.

    Attributes:
        x: the images with a label, ``[100, 1, 8, 8]``.
        y: their labels.
        unlabelled: the other 900 images of the pool.
        held_x: images that the run is judged by; they are never trained on.
        held_y: their labels.
    """

    x: Tensor
    y: Tensor
    unlabelled: Tensor
    held_x: Tensor
    held_y: Tensor


def digits(seed: int, part: Part) -> Digits:
    """The digits with the 100 labels that this seed draws, ten of each class, judged by ``part``."""
    pool_x, pool_y, held = _shares()
    labelled = labelled_subset(pool_y, LABELS, classes=10, seed=seed)
    rest = unlabelled_subset(len(pool_y), labelled, include_labelled=False)
    return Digits(pool_x[labelled], pool_y[labelled], pool_x[rest], *held[part])


@cache
def _shares() -> tuple[Tensor, Tensor, dict[Part, tuple[Tensor, Tensor]]]:
    """The pool's images and labels, and those of both held-out parts, normalised."""
    spec = spec_of("digits")

    def normalised(images: Tensor) -> Tensor:
        return (images.to(torch.float32) / 255 - spec.mean[0]) / spec.std[0]

    train, test = load("digits", "train"), load("digits", "test")
    chosen, held = hold_out(len(train), VALIDATION / len(train), seed=0)
    pool, validation = train.subset(chosen), train.subset(held)
    parts: dict[Part, tuple[Tensor, Tensor]] = {
        "validation": (normalised(validation.images), validation.labels),
        "test": (normalised(test.images), test.labels),
    }
    return normalised(pool.images), pool.labels, parts
