"""The 6-layer convolutional network of the generalisation-gap study."""

from __future__ import annotations

from torch import Tensor, nn

from iam_lab.models.encoder import Encoder

HIDDEN = 100


class SixCNN(Encoder):
    """Four convolutions and two linear maps: 511,926 weights for ten classes and images ``[3, 32, 32]``.

    The paper names only "6CNN"; the layer sizes are those of its released code. The convolutions have no
    bias; every second one has a 4x4 kernel and halves the resolution.

    =========  ======  ======  =======  ==========================
    layer      kernel  stride  weights  output for ``[3, 32, 32]``
    =========  ======  ======  =======  ==========================
    conv       3       1           864  ``[32, 32, 32]``
    conv       4       2        16,384  ``[32, 16, 16]``
    conv       3       1        18,432  ``[64, 16, 16]``
    conv       4       2        65,536  ``[64, 8, 8]``
    linear                     409,700  ``[100]``
    linear                       1,010  ``[10]``
    =========  ======  ======  =======  ==========================

    Shapes: ``[B, channels, image_size, image_size]`` to ``[B, classes]``.

    >>> import torch
    >>> model = SixCNN()
    >>> sum(p.numel() for p in model.parameters()), model(torch.zeros(2, 3, 32, 32)).shape
    (511926, torch.Size([2, 10]))
    """

    def __init__(self, classes: int = 10, channels: int = 3, image_size: int = 32) -> None:
        super().__init__()
        if image_size < 4:
            raise ValueError(f"SixCNN halves an image twice and needs image_size >= 4; found {image_size}.")
        final = image_size // 2 // 2
        self.body = nn.Sequential(
            *_convolution(channels, 32, kernel=3, stride=1),
            *_convolution(32, 32, kernel=4, stride=2),
            *_convolution(32, 64, kernel=3, stride=1),
            *_convolution(64, 64, kernel=4, stride=2),
            nn.Flatten(),
            nn.Linear(64 * final * final, HIDDEN),
            nn.ReLU(),
        )
        self.feature_size = HIDDEN
        self.head = nn.Linear(HIDDEN, classes)

    def features(self, x: Tensor) -> Tensor:
        """The hidden linear layer, ``[B, 100]``."""
        hidden: Tensor = self.body(x)
        return hidden


def _convolution(
    channels_in: int, channels_out: int, kernel: int, stride: int
) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(channels_in, channels_out, kernel, stride, padding=1, bias=False), nn.ReLU()
