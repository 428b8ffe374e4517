"""ResNet-18 for small images, the encoder of the contrastive experiments."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from iam_lab.models.encoder import Encoder, initialize_for_relu


class ResNet18(Encoder):
    """ResNet-18 with a 3x3 stem of stride 1 and no max-pooling: 11,173,962 weights for ten classes.

    Args:
        classes: number of outputs.
        channels: of the images.
        width: channels of the first stage; the others have 2, 4 and 8 times as many. 64 is the standard,
            less makes a small encoder of the same shape.

    Shapes: ``[B, channels, H, W]`` to ``[B, classes]``; features ``[B, 8 * width]``.

    >>> import torch
    >>> model = ResNet18(width=4)
    >>> model.features(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 32])
    """

    def __init__(self, classes: int = 10, channels: int = 3, *, width: int = 64) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width counts the channels of the first stage, at least 1; found {width}.")
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.stages = nn.ModuleList(
            nn.Sequential(
                BasicBlock(before, after, stride=1 if stage == 0 else 2),
                BasicBlock(after, after, stride=1),
            )
            for stage, (before, after) in enumerate(pairwise(sizes))
        )
        self.feature_size = sizes[-1]
        self.head = nn.Linear(self.feature_size, classes)
        initialize_for_relu(self)

    def features(self, x: Tensor) -> Tensor:
        """Channels averaged over the image, ``[B, 8 * width]``."""
        x = F.relu(self.norm(self.stem(x)))
        for stage in self.stages:
            x = stage(x)
        return x.mean((2, 3))


class BasicBlock(nn.Module):
    """Convolution, BatchNorm, ReLU, convolution, BatchNorm, added to the input, ReLU.

    Shapes: ``[B, channels_in, H, W]`` to ``[B, channels_out, H / stride, W / stride]``.
    """

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.shortcut: nn.Module | None = None
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Activated sum of input and residual."""
        residual: Tensor = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        around: Tensor = x if self.shortcut is None else self.shortcut(x)
        return F.relu(around + residual)
