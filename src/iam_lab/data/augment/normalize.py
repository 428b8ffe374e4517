"""From bytes to what a model takes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from iam_lab.data.augment.operation import constant


@dataclass(frozen=True)
class Normalize:
    r"""Scale to [0, 1], subtract the mean of each channel, divide by its standard deviation.

    .. math:: x \mapsto (x / 255 - \mathrm{mean}) / \mathrm{std}

    Args:
        mean: of each channel, between 0 and 1.
        std: of each channel.
        dtype: of the result.
        channels_last: lay the result out with the channels of a pixel side by side, as fast convolutions
            want it.

    Shapes: uint8 ``[B, C, H, W]`` to ``dtype`` ``[B, C, H, W]``.

    >>> Normalize(mean=(0.5,), std=(0.25,))(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    tensor([[[[-2.,  2.]]]])
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    dtype: torch.dtype = torch.float32
    channels_last: bool = False

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean or min(self.std) <= 0:
            raise ValueError(
                "mean and std have a number for every channel, and std is positive; "
                f"found mean={self.mean}, std={self.std}."
            )

    def __call__(self, images: Tensor) -> Tensor:
        """Normalised images."""
        channels = images.shape[1]
        if channels != len(self.mean):
            raise ValueError(f"The images have {channels} channels, mean and std {len(self.mean)}.")
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        scale = constant(tuple(1 / (255 * s) for s in self.std), images.device).view(-1, 1, 1)
        shift = constant(tuple(-m / s for m, s in zip(self.mean, self.std, strict=True)), images.device)
        pixels = images.to(torch.float32, memory_format=layout, copy=True)
        return pixels.mul_(scale).add_(shift.view(-1, 1, 1)).to(self.dtype)
