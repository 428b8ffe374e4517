"""A square of every image painted over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from iam_lab.data.augment.operation import Operation, integers


class Centre(NamedTuple):
    """The pixel in the middle of the square, int64 ``[B]`` each."""

    row: Tensor
    column: Tensor


@dataclass(frozen=True)
class Cutout(Operation[Centre]):
    """Paint over a square around a pixel, every pixel equally likely; what lies outside is cut off.

    Args:
        size: side of the square in pixels.
        fill: what it is painted with; FixMatch takes a middle grey.

    >>> image = torch.ones(1, 1, 3, 3, dtype=torch.uint8)
    >>> Cutout(size=2, fill=0).apply(image, Centre(torch.tensor([0]), torch.tensor([1])))
    tensor([[[[0, 0, 1],
              [1, 1, 1],
              [1, 1, 1]]]], dtype=torch.uint8)
    """

    size: int = 16
    fill: int = 127

    def __post_init__(self) -> None:
        if self.size < 0 or not 0 <= self.fill <= 255:
            raise ValueError(
                "size is a number of pixels, fill a byte from 0 to 255; "
                f"found size={self.size}, fill={self.fill}."
            )

    def draw(self, images: Tensor, generator: Generator) -> Centre:
        """A centre for every image."""
        height, width = images.shape[2:]
        return Centre(integers(images, generator, height), integers(images, generator, width))

    def apply(self, images: Tensor, drawn: Centre) -> Tensor:
        """The images with their squares."""
        rows = self._within(drawn.row, images.shape[2])[:, None, :, None]
        columns = self._within(drawn.column, images.shape[3])[:, None, None, :]
        return images.masked_fill(rows & columns, self.fill)

    def _within(self, centre: Tensor, size: int) -> Tensor:
        start = (centre - self.size // 2)[:, None]
        index = torch.arange(size, device=centre.device)
        return (index >= start) & (index < start + self.size)
