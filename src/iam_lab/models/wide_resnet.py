"""Wide residual networks, WRN-depth-width (Zagoruyko and Komodakis, 2016)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from iam_lab.models.encoder import Encoder, initialize_for_relu


class WideResNet(Encoder):
    """Three groups of (depth - 4) / 6 pre-activated residual units of two 3x3 convolutions.

    The groups have 16, 32 and 64 times ``width`` channels; the second and third start at half the
    resolution. Weights for ten classes and three channels:

    ========  ==========  ================
    model     standard    ``extra_block``
    ========  ==========  ================
    WRN-16-8  10,961,370        17,158,106
    WRN-28-2   1,467,610         1,855,578
    WRN-28-8  23,354,842        29,551,578
    WRN-28-10 36,479,194        46,160,474
    ========  ==========  ================

    Args:
        depth: number of convolutions on the longest way; depth - 4 is a multiple of 6.
        width: what multiplies the channels.
        classes: number of outputs.
        channels: of the images.
        dropout: probability of dropping a value between the two convolutions of a unit.
        extra_block: one more unit in each group, which the paper's released code builds for the same name.

    Shapes: ``[B, channels, H, W]`` to ``[B, classes]``, for any H and W from 4 on.

    >>> import torch
    >>> WideResNet(depth=10, width=1)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        depth: int = 16,
        width: int = 8,
        classes: int = 10,
        channels: int = 3,
        *,
        dropout: float = 0.0,
        extra_block: bool = False,
    ) -> None:
        super().__init__()
        units, rest = divmod(depth - 4, 6)
        if units < 1 or rest:
            near = sorted({max(10, 6 * units + 4), 6 * max(units + 1, 1) + 4})
            raise ValueError(
                f"The depth of a wide residual network is 6 n + 4; found {depth}. "
                f"Write {' or '.join(map(str, near))}."
            )
        if width < 1:
            raise ValueError(f"width multiplies the channels and is at least 1; found {width}.")
        units += extra_block
        sizes = [16, 16 * width, 32 * width, 64 * width]
        self.stem = nn.Conv2d(channels, sizes[0], 3, padding=1, bias=False)
        self.groups = nn.ModuleList(
            nn.Sequential(
                ResidualUnit(sizes[group], sizes[group + 1], 1 if group == 0 else 2, dropout),
                *(ResidualUnit(sizes[group + 1], sizes[group + 1], 1, dropout) for _ in range(units - 1)),
            )
            for group in range(3)
        )
        self.norm = nn.BatchNorm2d(sizes[-1])
        self.feature_size = sizes[-1]
        self.head = nn.Linear(self.feature_size, classes)
        initialize_for_relu(self)

    def features(self, x: Tensor) -> Tensor:
        """Channels averaged over the image, ``[B, 64 * width]``."""
        x = self.stem(x)
        for group in self.groups:
            x = group(x)
        pooled: Tensor = F.relu(self.norm(x)).mean((2, 3))
        return pooled


class ResidualUnit(nn.Module):
    """BatchNorm, ReLU, convolution, twice, added to the input.

    Where channels or resolution change, the input is added through a 1x1 convolution, which takes it after
    the first activation.

    Shapes: ``[B, channels_in, H, W]`` to ``[B, channels_out, H / stride, W / stride]``.
    """

    def __init__(self, channels_in: int, channels_out: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        changes = stride != 1 or channels_in != channels_out
        self.shortcut = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """Input plus residual."""
        active = F.relu(self.norm1(x))
        residual = self.dropout(F.relu(self.norm2(self.conv1(active))))
        around: Tensor = x if self.shortcut is None else self.shortcut(active)
        total: Tensor = around + self.conv2(residual)
        return total
