"""Random crops of a padded image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from iam_lab.data.augment.operation import Operation, integers


class Corner(NamedTuple):
    """Upper left corner of each crop in the padded image, int64 ``[B]`` each, from 0 to 2 padding."""

    top: Tensor
    left: Tensor


@dataclass(frozen=True)
class RandomCrop(Operation[Corner]):
    """Pad by ``padding`` on every side and cut out the original size, at any place equally likely.

    Args:
        padding: pixels on every side.
        mode: what the padding shows: "zero", or "reflect" for the image mirrored at its edge.

    >>> crop = RandomCrop(padding=1)
    >>> image = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
    >>> crop.apply(image, Corner(top=torch.tensor([0]), left=torch.tensor([1])))
    tensor([[[[0, 0],
              [1, 2]]]], dtype=torch.uint8)
    """

    padding: int = 4
    mode: Literal["zero", "reflect"] = "zero"

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise ValueError(f"padding is a number of pixels, not negative; found {self.padding}.")
        if self.mode not in ("zero", "reflect"):
            raise ValueError(f"mode is 'zero' or 'reflect'; found {self.mode!r}.")

    def draw(self, images: Tensor, generator: Generator) -> Corner:
        """A corner for every image."""
        places = 2 * self.padding + 1
        return Corner(integers(images, generator, places), integers(images, generator, places))

    def apply(self, images: Tensor, drawn: Corner) -> Tensor:
        """The crops, of the images' size."""
        height, width = images.shape[2:]
        if self.mode == "reflect" and self.padding >= min(height, width):
            raise ValueError(
                f"Reflection repeats at most {min(height, width) - 1} pixels of images of {height} x {width}; "
                f"found padding={self.padding}."
            )
        rows = drawn.top[:, None] + torch.arange(height, device=images.device)
        columns = drawn.left[:, None] + torch.arange(width, device=images.device)
        if self.mode == "zero":
            return take(F.pad(images, [self.padding] * 4), rows, columns)
        return take(images, _mirrored(rows - self.padding, height), _mirrored(columns - self.padding, width))


def take(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Pixels at the crossings of ``rows`` ``[B, H']`` and ``columns`` ``[B, W']``: ``[B, C, H', W']``.

    One gather over flattened images; on a CPU it takes a fifth of indexing with two index tensors.
    """
    batch, channels, _, width = images.shape
    flat = (rows[:, :, None] * width + columns[:, None, :]).view(batch, 1, -1)
    pixels = images.flatten(2).gather(2, flat.expand(-1, channels, -1))
    return pixels.view(batch, channels, rows.shape[1], columns.shape[1])


def _mirrored(index: Tensor, size: int) -> Tensor:
    """Reflection at the middle of the first and of the last pixel."""
    return (size - 1) - ((size - 1) - index.abs()).abs()
