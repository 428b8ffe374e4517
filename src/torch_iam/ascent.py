r"""The inner maximisation: which delta in the neighborhood moves the outputs most.

:class:`ExpectedDivergence` is the function that is climbed,

.. math:: \delta \mapsto \mathbb{E}_x\, D\big(f(x; \theta),\, f(x; \theta + \delta)\big),

over one batch or many. :func:`power_iteration` is Algorithm 1 of the paper, :func:`projected_ascent` a
slower climber to check it with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torch_iam.derivatives import Derivatives
from torch_iam.directions import Direction, copy_of, scale_
from torch_iam.divergence import Divergence, Total, curvature_product, slope_at, total
from torch_iam.formulas import differentiable_twice
from torch_iam.inputs import Output
from torch_iam.lift import LiftedSum
from torch_iam.neighborhood import Neighborhood
from torch_iam.perturb import Visit, gradients

Slope = Callable[[Direction], tuple[Tensor, Direction]]
"""The value at delta and the gradient there. The storage of delta is used up: pass a copy to keep it."""

PROBES = ("divergence", "fisher")


@dataclass(frozen=True)
class Climb:
    """Where an ascent ended.

    Attributes:
        delta: the direction found, of norm rho; zero where the ascent failed.
        ok: for every group of weights, whether it is a step at all (``[groups]``; nothing waits for it).
        values: the function at each direction that the ascent came through, the start first.
    """

    delta: Direction
    ok: Tensor
    values: list[Tensor]


class ExpectedDivergence:
    """The divergence between the model here and at theta + delta, in expectation over some visits.

    Args:
        ball: which weights move.
        divergence: how far apart two outputs are.
        output: the tensor of a model's answer that counts.
        visits: batches with the logits of their clean pass, ``[B, ...]`` each.
        combine: what is done with a gradient before it is used; several devices average it here.
        derivatives: how the model is differentiated, where that is known from before.
    """

    def __init__(
        self,
        ball: Neighborhood,
        divergence: Divergence,
        output: Callable[[Output], Tensor],
        visits: Iterable[tuple[Visit, Tensor]],
        combine: Callable[[Direction], None] | None = None,
        derivatives: Derivatives | None = None,
    ) -> None:
        self.ball, self.divergence, self.output = ball, divergence, output
        self.visits = [(visit, clean.detach()) for visit, clean in visits]
        self.combine = combine
        self.derivatives = Derivatives(output) if derivatives is None else derivatives

    @torch.no_grad()
    def value(self, delta: Direction) -> Tensor:
        """E D at theta + delta, which is kept; a forward pass a batch."""
        there = self.ball.moved(copy_of(delta), leaf=True)
        parts = []
        for visit, clean in self.visits:
            here, moved = (_in_double(logits) for logits in (clean, self.output(visit.at(there))))
            parts.append(total(self.divergence, here, moved, visit.inputs))
        return _joined(parts).mean

    def slope(self, delta: Direction) -> tuple[Tensor, Direction]:
        """E D at theta + delta and its gradient in delta, whose direction counts and not its length.

        A forward and a backward pass a batch.
        """
        there = self.ball.moved(delta, leaf=True)
        leaves, total_slope = list(there.values()), LiftedSum(self.ball.weights)
        parts: list[Total] = []
        for visit, clean in self.visits:

            def climbed(
                output: Output, visit: Visit = visit, clean: Tensor = clean
            ) -> tuple[Total, Direction]:
                logits = self.output(output)
                part, slope = slope_at(self.divergence, clean, logits, visit.inputs)
                return part, self._pulled_back(logits, leaves, slope, part, total_slope)

            with torch.enable_grad():
                part, found = visit.at(there, climbed)
            parts.append(part)
            total_slope.add(found)
        return self._averaged(_joined(parts), total_slope)

    def fisher(self, delta: Direction) -> tuple[Tensor, Direction]:
        r"""Half the quadratic form and the product F delta, without a step of finite length.

        F = E J' (second derivative of D in its second argument) J, the Fisher matrix for a KL divergence.
        A forward pass that carries tangents, and a backward pass a batch.
        """
        total_product = LiftedSum(self.ball.weights)
        parts: list[Total] = []
        for visit, _ in self.visits:
            with differentiable_twice(visit.model):
                part, found = self._fisher_of(visit, delta, total_product)
            parts.append(part)
            total_product.add(found)
        return self._averaged(_joined(parts), total_product)

    def _fisher_of(self, visit: Visit, delta: Direction, into: LiftedSum) -> tuple[Total, Direction]:
        def product(answer: Output, pushed: Tensor, leaves: Direction) -> tuple[Total, Direction]:
            logits = self.output(answer)
            curved, count = curvature_product(self.divergence, logits, pushed, visit.inputs)
            part = Total((curved * pushed).sum() / 2, count)
            return part, self._pulled_back(logits, leaves, curved, part, into)

        def evaluate(weights: dict[str, Tensor], then: Callable[[Output], Any]) -> Any:
            return visit.at(weights, then, eager=True)

        along = dict(zip(self.ball.names, delta, strict=True))
        return self.derivatives.beside_graph(evaluate, self.ball.here(), along, product)

    def _pulled_back(
        self, logits: Tensor, leaves: Direction, slope: Tensor, part: Total, into: LiftedSum
    ) -> Direction:
        """From a gradient at the logits to one at the weights."""
        if len(self.visits) == 1:  # divided here, where it is small, and not over all weights
            slope = slope / part.divisor
        return gradients(logits, leaves, into.lift(slope).to(logits.dtype))

    def _averaged(self, parts: Total, found: LiftedSum) -> tuple[Tensor, Direction]:
        if len(self.visits) > 1:
            scale_(found.gradient, 1 / parts.number.double())
        if self.combine is not None:
            found.lower()  # every device has a factor of its own
            self.combine(found.gradient)
        return parts.mean, found.gradient


def power_iteration(
    ball: Neighborhood, slope: Slope, start: Direction, steps: int, ok: Tensor | None = None
) -> Climb:
    r"""Algorithm 1: the gradient itself, scaled to the sphere, is the next direction.

    .. math:: \delta_{k+1} = \rho\, \frac{g_k}{\|g_k\|}, \qquad
        g_k = \nabla_\delta\, \mathbb{E}_x D(f(x; \theta), f(x; \theta + \delta)) \big|_{\delta_k}

    On the quadratic approximation, where g = F delta, this is the power iteration for the top eigenvector.

    Args:
        ball: where delta lives.
        slope: of what is climbed.
        start: delta_0, whose storage is used up.
        steps: K; with 0 the start itself is the direction found.
        ok: whether the start is a step at all, for every group.
    """
    delta = start
    if ok is None:
        ok = torch.ones(len(ball.groups), dtype=torch.bool, device=start[0].device)
    del start  # its storage is used up in the first step and should go with it
    values = []
    for _ in range(steps):
        value, gradient = slope(delta)
        values.append(value)
        delta, ok = ball.to_sphere(gradient)
    return Climb(delta, ok, values)


def projected_ascent(
    ball: Neighborhood, slope: Slope, start: Direction, steps: int, step_size: float | None = None
) -> Climb:
    r"""Steps of a decaying length along the gradient, each pulled back into the ball; the best point wins.

    .. math:: \delta_{k+1} = \Pi\Big(\delta_k + \eta_k \frac{g_k}{\|g_k\|}\Big), \qquad
        \eta_k = \eta_0 \Big(1 - \frac{k}{\mathrm{steps}}\Big), \quad \eta_0 = \rho / 8

    It makes no use of the quadratic approximation, and so checks :func:`power_iteration` at any radius. It is
    slower, and no better: on the toy network both reach the same maximum, where the theory is off too.
    """
    relative = 1 / 8 if step_size is None else step_size / ball.rho
    delta = ball.into_ball(start)
    best, best_value = delta, torch.full((), -torch.inf, device=start[0].device)
    climbed = torch.zeros((), dtype=torch.bool, device=start[0].device)
    values = []
    for k in range(steps):
        value, gradient = slope(copy_of(delta))
        values.append(value)
        if value > best_value:
            best, best_value = delta, value
        step, ok = ball.to_sphere(gradient)
        climbed |= ok.any()
        torch._foreach_mul_(step, relative * (1 - k / steps))
        delta = ball.into_ball(list(torch._foreach_add(delta, step)))
    value, _ = slope(copy_of(delta))
    values.append(value)
    if value > best_value:
        best, best_value = delta, value
    found = climbed & (best_value > 0)
    return Climb(best if found else ball.zeros(), found.expand(len(ball.groups)), values)


def _joined(parts: list[Total]) -> Total:
    if len(parts) == 1:
        return parts[0]
    return Total(torch.stack([p.value for p in parts]).sum(), sum(p.count for p in parts))


def _in_double(logits: Tensor) -> Tensor:
    """A divergence is of second order in the difference, and its terms are not: single precision loses it."""
    return logits if logits.device.type == "mps" else logits.double()
