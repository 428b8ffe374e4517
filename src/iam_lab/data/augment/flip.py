"""Mirror images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from iam_lab.data.augment.operation import Operation, coins, per_image, probability


@dataclass(frozen=True)
class HorizontalFlip(Operation[Tensor]):
    """Exchange left and right with probability ``p``; what is drawn is bool ``[B]``.

    >>> image = torch.tensor([[[[1, 2, 3]]]], dtype=torch.uint8)
    >>> HorizontalFlip().apply(image, torch.tensor([True]))
    tensor([[[[3, 2, 1]]]], dtype=torch.uint8)
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        probability(self.p, "p")

    def draw(self, images: Tensor, generator: Generator) -> Tensor:
        """Which images are flipped."""
        return coins(images, generator, self.p)

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """The images, some of them mirrored."""
        return torch.where(per_image(drawn), images.flip(3), images)
