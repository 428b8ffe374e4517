"""Points in the plane from a mixture of three Gaussians."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mixture:
    """Three round Gaussians at the corners of a regular triangle around the origin.

    The paper names neither the centres nor the spread; ``spread`` decides how much the classes overlap.

    Attributes:
        count: number of points, a third from each Gaussian.
        spread: standard deviation of each Gaussian; the centres have distance 2 from the origin.
        seed: of the draw.

    >>> points, labels = Mixture(count=6).draw()
    >>> points.shape, labels.tolist()
    (torch.Size([6, 2]), [0, 1, 2, 0, 1, 2])
    """

    count: int = 150
    spread: float = 1.0
    seed: int = 0

    def draw(self) -> tuple[Tensor, Tensor]:
        """Points float64 ``[N, 2]`` and labels int64 ``[N]``."""
        generator = torch.Generator().manual_seed(self.seed)
        angles = torch.tensor([math.pi / 2 + 2 * math.pi * k / 3 for k in range(3)], dtype=torch.float64)
        centres = 2 * torch.stack([angles.cos(), angles.sin()], dim=1)
        labels = torch.arange(self.count) % 3
        noise = torch.randn(self.count, 2, generator=generator, dtype=torch.float64)
        return centres[labels] + self.spread * noise, labels
