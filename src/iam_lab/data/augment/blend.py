"""Mixing an image with another one made from it: brightness, contrast, saturation, sharpness.

Images here are float32 ``[B, C, H, W]`` that hold whole numbers from 0 to 255, factors are ``[B]``. Each
result is cut off and rounded down as torchvision does for bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from iam_lab.data.augment.operation import constant, per_image

LUMA = (0.2989, 0.587, 0.114)
"""Weights of red, green and blue in the brightness that an eye sees."""


def mix(images: Tensor, others: Tensor, factor: Tensor) -> Tensor:
    """``factor`` of the images and ``1 - factor`` of the others; a factor of 1 changes nothing.

    >>> mix(torch.full((1, 1, 1, 1), 100.0), torch.zeros(1, 1, 1, 1), torch.tensor([1.505])).item()
    150.0
    """
    factor = per_image(factor)
    return (others - images).mul_(1 - factor).add_(images).clamp_(0, 255).floor_()


def gray(images: Tensor) -> Tensor:
    """Brightness of every pixel, ``[B, 1, H, W]``; of images with one channel, the images."""
    if images.shape[1] == 1:
        return images
    weights = constant(LUMA, images.device).view(-1, 1, 1)
    return (images * weights).sum(1, keepdim=True).floor()


def blurred(images: Tensor) -> Tensor:
    """Every inner pixel averaged with its eight neighbours, itself counting five times; edges unchanged."""
    if min(images.shape[2:]) <= 2:
        return images
    # Sums of slices: on a CPU ten times faster than pooling.
    rows = (images[:, :, :-2] + images[:, :, 1:-1]).add_(images[:, :, 2:])
    around = (rows[..., :-2] + rows[..., 1:-1]).add_(rows[..., 2:])
    smooth = around.add_(images[:, :, 1:-1, 1:-1], alpha=4).div_(13).round_()
    out = images.clone()
    out[:, :, 1:-1, 1:-1] = smooth
    return out


def shifted_hue(images: Tensor, shift: Tensor) -> Tensor:
    r"""Colours moved along the circle of hues by ``shift`` turns, brightness and saturation kept.

    With M the largest channel, c the range of the channels and h the hue in sixths of a turn, red, green
    and blue are, for n = 5, 3, 1,

    .. math:: M - c \cdot \mathrm{clamp}(\min(k, 4 - k), 0, 1), \qquad k = (n + h) \bmod 6.

    >>> red = torch.tensor([255.0, 0.0, 0.0]).view(1, 3, 1, 1)
    >>> shifted_hue(red, torch.tensor([1 / 3])).flatten().tolist()
    [0.0, 255.0, 0.0]
    """
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    largest = images.amax(1)
    chroma = largest - images.amin(1)
    divisor = chroma.clamp(min=1)
    hue = torch.where(
        largest == red,
        (green - blue) / divisor,
        torch.where(largest == green, (blue - red) / divisor + 2, (red - green) / divisor + 4),
    )
    start = constant((5.0, 3.0, 1.0), images.device).view(-1, 1, 1)
    k = (start + (hue + 6 * shift.view(-1, 1, 1))[:, None]).remainder_(6)
    moved = largest[:, None] - torch.minimum(k, 4 - k).clamp_(0, 1).mul_(chroma[:, None])
    return moved.mul_(255.999 / 255).floor_()  # torchvision's way back from [0, 1] to bytes
