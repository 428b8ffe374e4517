"""Projected ascent from many starts at once: what ``iam.local_inconsistency`` does one start after another.

On a network this small the calls cost more than the arithmetic; all starts in one call take half the time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from torch_iam.neighborhood import Neighborhood


@torch.no_grad()
def projected_ascents(network: nn.Module, points: Tensor, rho: float, starts: int, steps: int) -> Tensor:
    """S after every step from every start, ``[starts, steps]``; the first step is of length rho / 8.

    Starts and steps are those of ``iam.local_inconsistency(..., ascent="projected", restarts=starts)``.
    """
    ball = Neighborhood(network, rho)
    weights = [weight.detach() for weight in ball.weights]
    clean = network(points).log_softmax(dim=1)

    def divergence(delta: Tensor) -> Tensor:
        parts = torch.split(delta, [weight.numel() for weight in weights])
        there = {
            name: weight + part.view_as(weight)
            for name, weight, part in zip(ball.names, weights, parts, strict=True)
        }
        moved = functional_call(network, there, (points,)).log_softmax(dim=1)
        # Written out: F.kl_div has no batched form and would loop over the starts.
        apart: Tensor = (clean.exp() * (clean - moved)).sum(dim=1).mean()
        return apart

    slope = vmap(grad_and_value(divergence))
    deltas = torch.stack([_start(ball, seed) for seed in range(starts)])
    values = []
    for k in range(steps):
        gradient, value = slope(deltas)
        values.append(value)
        step = rho / 8 * (1 - k / steps)
        deltas = deltas + step * gradient / gradient.norm(dim=1, keepdim=True)
        deltas = deltas * (rho / deltas.norm(dim=1, keepdim=True)).clamp(max=1.0)
    values.append(vmap(divergence)(deltas))
    return torch.stack(values[1:], dim=1)


def _start(ball: Neighborhood, seed: int) -> Tensor:
    start = ball.resized(ball.draw(torch.Generator().manual_seed(seed)))
    return torch.cat([part.flatten() for part in start])
