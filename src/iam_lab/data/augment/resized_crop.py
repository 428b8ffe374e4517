"""Random boxes of an image, resized to one size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from iam_lab.data.augment.operation import Operation

ATTEMPTS = 10


class Box(NamedTuple):
    """Upper left corner and size of every box, int64 ``[B]`` each."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


@dataclass(frozen=True)
class RandomResizedCrop(Operation[Box]):
    """A box of random area, shape and place, resized with antialiased bilinear interpolation.

    Args:
        size: height and width of the result; by default those of the images.
        scale: range of the box's share of the area, uniformly drawn.
        ratio: range of width over height, uniformly drawn on a logarithmic scale.

    >>> crop = RandomResizedCrop(size=16)
    >>> crop(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 16, 16])
    """

    size: int | None = None
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        if not 0 < self.scale[0] <= self.scale[1] <= 1 or not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(
                "scale is an increasing pair within (0, 1], ratio an increasing pair of positive numbers; "
                f"found scale={self.scale}, ratio={self.ratio}."
            )

    def draw(self, images: Tensor, generator: Generator) -> Box:
        """A box for every image: the first of ten attempts that fits in, else the largest central one."""
        height, width = images.shape[2:]
        shape = (4, len(images), ATTEMPTS)
        area, ratio, down, right = torch.rand(shape, generator=generator, device=images.device).unbind(0)
        area = height * width * (self.scale[0] + (self.scale[1] - self.scale[0]) * area)
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratio = (low + (high - low) * ratio).exp()
        widths = (area * ratio).sqrt().round().long()
        heights = (area / ratio).sqrt().round().long()
        fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
        first = fits.int().argmax(1, keepdim=True)
        central_height, central_width = self._central(height, width)
        some = fits.any(1)
        box_height = torch.where(some, heights.gather(1, first)[:, 0], central_height)
        box_width = torch.where(some, widths.gather(1, first)[:, 0], central_width)
        top = _place(down.gather(1, first)[:, 0], height - box_height)
        left = _place(right.gather(1, first)[:, 0], width - box_width)
        return Box(
            torch.where(some, top, (height - central_height) // 2),
            torch.where(some, left, (width - central_width) // 2),
            box_height,
            box_width,
        )

    def apply(self, images: Tensor, drawn: Box) -> Tensor:
        """The boxes, resized: two matrix products with the interpolation weights of each image."""
        height, width = images.shape[2:]
        vertical = _weights(drawn.top, drawn.height, height, self.size or height)
        horizontal = _weights(drawn.left, drawn.width, width, self.size or width)
        pixels = vertical[:, None] @ images.float() @ horizontal[:, None].transpose(2, 3)
        return pixels.round().clamp(0, 255).to(images.dtype)

    def _central(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the largest box of an allowed shape."""
        if width / height < self.ratio[0]:
            return round(width / self.ratio[0]), width
        if width / height > self.ratio[1]:
            return height, round(height * self.ratio[1])
        return height, width


def _place(share: Tensor, free: Tensor) -> Tensor:
    """A whole number from 0 to ``free`` for a share of the range."""
    return torch.minimum((share * (free + 1)).long(), free)


def _weights(start: Tensor, length: Tensor, size: int, out: int) -> Tensor:
    """How much every pixel counts for every resized pixel: ``[B, out, size]``, rows sum to 1.

    A resized pixel is the mean of the pixels around its centre, weighted by a triangle as wide as the
    larger of the two grids; pixels outside of the box do not count.
    """
    scale = (length.float() / out)[:, None, None]
    centre = scale * (torch.arange(out, device=start.device) + 0.5)[:, None]
    pixel = torch.arange(size, device=start.device) - start[:, None, None]
    inside = (pixel >= 0) & (pixel < length[:, None, None])
    triangle = (1 - (pixel + 0.5 - centre).abs() / scale.clamp(min=1)).clamp(min=0) * inside
    return triangle / triangle.sum(2, keepdim=True)
