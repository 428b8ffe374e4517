"""Changes that look only at the value of a pixel: a table of 256 new values for each image and channel.

Tables are float32 ``[B, C, 256]`` with whole numbers from 0 to 255.
"""

from __future__ import annotations

import torch
from torch import Tensor


def values(device: torch.device) -> Tensor:
    """The table that changes nothing, ``[256]``."""
    return torch.arange(256, dtype=torch.float32, device=device)


def look_up(images: Tensor, table: Tensor) -> Tensor:
    """Every pixel's new value; images uint8 ``[B, C, H, W]``.

    >>> image = torch.tensor([[[[0, 200]]]], dtype=torch.uint8)
    >>> look_up(image, 255 - values(image.device).expand(1, 1, 256))
    tensor([[[[255,  55]]]], dtype=torch.uint8)
    """
    found = table.to(images.dtype).gather(2, images.flatten(2).long())
    return found.view(images.shape)


def posterized(bits: Tensor, device: torch.device) -> Tensor:
    """Keep the highest ``bits`` of a byte; ``[B]`` to ``[B, 1, 256]``."""
    step = torch.exp2(8 - bits).view(-1, 1, 1)
    return values(device) - values(device).remainder(step)


def solarized(threshold: Tensor, device: torch.device) -> Tensor:
    """Invert what is not below the threshold; ``[B]`` to ``[B, 1, 256]``."""
    table = values(device)
    return torch.where(table >= threshold.view(-1, 1, 1), 255 - table, table)


def stretched(images: Tensor) -> Tensor:
    """Scale every channel of every image so that its values run from 0 to 255."""
    flat = images.flatten(2).float()
    low, high = flat.amin(2, keepdim=True), flat.amax(2, keepdim=True)
    table = values(images.device)
    scaled = ((table - low) / ((high - low).clamp(min=1) * (1 / 255))).clamp(0, 255).floor()
    return torch.where(high > low, scaled, table)


def equalized(images: Tensor) -> Tensor:
    r"""Spread the values of every channel of every image evenly, by Pillow's whole-number scheme.

    With n pixels, n_v of them of value v and M the largest value, step = (n - n_M) // 255 and

    .. math:: v \mapsto \Big\lfloor \frac{\sum_{u<v} n_u + \lfloor step / 2 \rfloor}{step}
        \Big\rfloor.
    """
    flat = images.flatten(2).long()
    counts = torch.zeros((*flat.shape[:2], 256), dtype=torch.int32, device=images.device)
    counts.scatter_add_(2, flat, counts.new_ones(()).expand_as(flat))
    largest = counts.gather(2, flat.amax(2, keepdim=True))
    step = (flat.shape[2] - largest) // 255
    below = counts.cumsum(2, dtype=torch.int32) - counts
    spread = ((below + step // 2) // step.clamp(min=1)).clamp(0, 255).float()
    return torch.where(step > 0, spread, values(images.device))
