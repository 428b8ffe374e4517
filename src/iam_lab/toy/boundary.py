"""Where in the plane a network decides for another class, at theta and at theta + delta."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

import torch_iam as iam
from torch_iam.neighborhood import Neighborhood

Delta = Mapping[str, Tensor]


@dataclass(frozen=True)
class Grid:
    """A square of the plane, sampled evenly.

    Attributes:
        half: the square reaches from -half to half in both coordinates.
        side: number of samples along each.
    """

    half: float = 4.5
    side: int = 181

    def axis(self) -> Tensor:
        """Coordinates of the samples, ``[side]``."""
        return torch.linspace(-self.half, self.half, self.side, dtype=torch.float64)

    def margins(self, network: nn.Module, delta: Delta | None = None, sign: float = 1.0) -> Tensor:
        """For every class its logit above the best other one, ``[side, side, classes]``: 0 on the boundary."""
        y, x = torch.meshgrid(self.axis(), self.axis(), indexing="ij")
        plane = torch.stack([x, y], dim=-1).reshape(-1, 2)
        logits = moved(network, plane, delta, sign).reshape(self.side, self.side, -1)
        best = logits.topk(2, dim=-1).values
        is_best = logits == best[..., :1]
        return logits - torch.where(is_best, best[..., 1:2], best[..., :1])


@torch.no_grad()
def moved(network: nn.Module, points: Tensor, delta: Delta | None = None, sign: float = 1.0) -> Tensor:
    """Logits with the weights at theta + sign delta, ``[N, classes]``."""
    weights = dict(network.named_parameters())
    there = {name: weights[name] + sign * step for name, step in (delta or {}).items()}
    logits: Tensor = functional_call(network, there, (points,))
    return logits


def one_step(network: nn.Module, points: Tensor, rho: float, seed: int) -> Delta:
    """delta_1: Algorithm 1 with K = 1 from the start of this seed."""
    return iam.local_inconsistency(network, points, rho=rho, steps=1, restarts=1, seed=seed).direction


def noise(network: nn.Module, rho: float, seed: int) -> Delta:
    """The start of this seed itself, at length rho."""
    ball = Neighborhood(network, rho)
    start = ball.resized(ball.draw(torch.Generator().manual_seed(seed)))
    return dict(zip(ball.names, start, strict=True))


def changed(network: nn.Module, points: Tensor, delta: Delta) -> float:
    """Share of the points that change their class, the mean of theta + delta and theta - delta."""
    here = moved(network, points).argmax(1)
    shares = [(moved(network, points, delta, s).argmax(1) != here).double().mean() for s in (1.0, -1.0)]
    return float(sum(shares)) / 2
