"""The pipelines that recipes name."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import torch

from iam_lab.data.augment.color import ColorJitter, Grayscale
from iam_lab.data.augment.crop import RandomCrop
from iam_lab.data.augment.cutout import Cutout
from iam_lab.data.augment.flip import HorizontalFlip
from iam_lab.data.augment.normalize import Normalize
from iam_lab.data.augment.operation import Operation
from iam_lab.data.augment.pipeline import Pipeline
from iam_lab.data.augment.rand_augment import RandAugment
from iam_lab.data.augment.resized_crop import RandomResizedCrop
from iam_lab.data.catalogue import DataSpec


def build_augment(
    name: str, spec: DataSpec, *, channels_last: bool = False, dtype: torch.dtype = torch.float32
) -> Pipeline:
    """The pipeline called ``name``, for the images of a data set.

    ==================  ==================================================================================
    none                normalisation only: evaluation
    crop-flip           crop from an image padded by an eighth of its size with zeros, flip
    weak                flip, crop from an image padded by reflection: the weak view of FixMatch
    fixmatch-strong     weak, then FixMatch's RandAugment(2, 10) and Cutout of half the image's size
    released-strong     weak, then torchvision's RandAugment(2, 10): what the paper's released code does
    crop                crop from an image padded by an eighth of its size with zeros: symbols, which a flip spoils
    crop-strong         crop, then FixMatch's RandAugment(2, 10) and Cutout of a quarter of the image's size
    simclr              RandomResizedCrop of 40 to 100 % of the area, flip, colour jitter, grayscale
    ==================  ==================================================================================

    FixMatch's RandAugment is that of its paper's table of ranges, not that of Google's code, whose ranges are
    others; see :class:`~iam_lab.data.augment.RandAugment`.

    Args:
        name: one of the above.
        spec: whose image size, mean and standard deviation count.
        channels_last: layout of the result.
        dtype: of the result.

    >>> from iam_lab.data import spec_of
    >>> build_augment("crop-flip", spec_of("cifar10")).operations
    (RandomCrop(padding=4, mode='zero'), HorizontalFlip(p=0.5))
    """
    if name not in PIPELINES:
        near = get_close_matches(name, PIPELINES, n=3, cutoff=0.4)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise ValueError(f"There is no augmentation {name!r}.{hint} Known are {', '.join(PIPELINES)}.")
    normalize = Normalize(spec.mean, spec.std, dtype, channels_last)
    return Pipeline(PIPELINES[name](spec.image_size), normalize)


def _padding(size: int) -> int:
    """4 pixels for images of 28 and 32, as everybody does; 1 for digits of 8."""
    return max(1, round(size / 8))


def _weak(size: int) -> tuple[Operation[Any], ...]:
    return HorizontalFlip(), RandomCrop(_padding(size), "reflect")


PIPELINES: dict[str, Callable[[int], tuple[Operation[Any], ...]]] = {
    "none": lambda size: (),
    "crop-flip": lambda size: (RandomCrop(_padding(size)), HorizontalFlip()),
    "weak": _weak,
    "fixmatch-strong": lambda size: (*_weak(size), RandAugment(2, 10, "fixmatch"), Cutout(size // 2)),
    "released-strong": lambda size: (*_weak(size), RandAugment(2, 10, "torchvision")),
    "crop": lambda size: (RandomCrop(_padding(size)),),
    "crop-strong": lambda size: (
        RandomCrop(_padding(size)),
        RandAugment(2, 10, "fixmatch"),
        Cutout(size // 4),
    ),
    "simclr": lambda size: (
        RandomResizedCrop(size, scale=(0.4, 1.0)),
        HorizontalFlip(),
        ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8),
        Grayscale(0.2),
    ),
}
"""Name to the operations for images of a size."""
