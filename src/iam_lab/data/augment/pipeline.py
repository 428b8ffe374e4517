"""Augmentations in a row, several views of an image, and the rows that recipes name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Generator, Tensor

from iam_lab.data.augment.normalize import Normalize
from iam_lab.data.augment.operation import Operation


@dataclass(frozen=True)
class Pipeline:
    """Operations on bytes, one after the other, then normalisation.

    Args:
        operations: in order; none for evaluation.
        normalize: the last step.

    Shapes: uint8 ``[B, C, H, W]`` to float ``[B, C, H', W']``.

    >>> import torch
    >>> from iam_lab.data.augment import HorizontalFlip, RandomCrop
    >>> augment = Pipeline((RandomCrop(4), HorizontalFlip()), Normalize((0.5,), (0.5,)))
    >>> images = torch.zeros(3, 1, 28, 28, dtype=torch.uint8)
    >>> augment(images, torch.Generator().manual_seed(0)).shape
    torch.Size([3, 1, 28, 28])
    """

    operations: tuple[Operation[Any], ...]
    normalize: Normalize

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Augmented and normalised images."""
        for operation in self.operations:
            images = operation(images, generator)
        return self.normalize(images)


@dataclass(frozen=True)
class Views:
    """Several pipelines on the same images, each with its own draws: weak and strong, or two equal ones.

    >>> import torch
    >>> same = Pipeline((), Normalize((0.5,), (0.5,)))
    >>> weak, strong = Views((same, same))(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.Generator())
    >>> weak.shape == strong.shape
    True
    """

    pipelines: tuple[Callable[[Tensor, Generator], Tensor], ...]

    def __call__(self, images: Tensor, generator: Generator) -> tuple[Tensor, ...]:
        """One batch for every pipeline."""
        return tuple(pipeline(images, generator) for pipeline in self.pipelines)
