"""What both examples need around them: scikit-learn's digits, two ways to distort them, and a small network."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images ``[N, 1, 8, 8]`` and labels to train on, then those to test on."""
    bunch = load_digits()
    images = torch.from_numpy(bunch.images).float()[:, None] / 16
    labels = torch.from_numpy(bunch.target)
    test = torch.arange(len(labels)) % 5 == 0
    return images[~test], labels[~test], images[test], labels[test]


def shifted(images: Tensor) -> Tensor:
    """Each image moved by up to a pixel: a weak view."""
    rows, columns = torch.randint(0, 3, (2, len(images), 1)) + torch.arange(8)
    padded = F.pad(images, [1] * 4)
    return padded[torch.arange(len(images))[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )


def distorted(images: Tensor) -> Tensor:
    """Moved, with other contrast, noise, and some pixels gone: a strong view."""
    contrast = 0.5 + torch.rand(len(images), 1, 1, 1)
    seen = (torch.rand_like(images) > 0.1).float()
    return (shifted(images) * contrast + 0.1 * torch.randn_like(images)) * seen


def network(outputs: int) -> nn.Module:
    """Two convolutions with BatchNorm, and a linear layer."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        nn.Linear(128, outputs),
    )


def batches(count: int, size: int, steps: int) -> Iterator[Tensor]:
    """Indices of ``steps`` random batches of ``count`` images."""
    for _ in range(steps):
        yield torch.randperm(count)[:size]
