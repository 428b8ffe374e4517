"""Every image under its own affine map."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def affine(images: Tensor, maps: Tensor) -> Tensor:
    """Look every pixel up where its map points to, in the nearest pixel; black where that is outside.

    Args:
        images: uint8 ``[B, C, H, W]``.
        maps: ``[B, 2, 3]``, from the (x, y, 1) of a pixel of the result to the (x, y) it comes from, in
            pixels from the centre of the image.

    >>> image = torch.tensor([[[[1, 2, 3]]]], dtype=torch.uint8)
    >>> shift = torch.tensor([[[1.0, 0.0, -1.0], [0.0, 1.0, 0.0]]])
    >>> affine(image, shift)
    tensor([[[[0, 1, 2]]]], dtype=torch.uint8)
    """
    height, width = images.shape[2:]
    x = torch.arange(width, device=images.device, dtype=torch.float32) - (width - 1) / 2
    y = torch.arange(height, device=images.device, dtype=torch.float32) - (height - 1) / 2
    maps = maps[:, None, None]
    source_x = maps[..., 0, 0] * x + maps[..., 0, 1] * y[:, None] + maps[..., 0, 2]
    source_y = maps[..., 1, 0] * x + maps[..., 1, 1] * y[:, None] + maps[..., 1, 2]
    grid = torch.stack((source_x / (0.5 * width), source_y / (0.5 * height)), -1)
    found = F.grid_sample(images.float(), grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return found.to(images.dtype)
