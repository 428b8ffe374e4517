r"""Every objective once more: short, slow, and readable as the paper is.

Each function takes a model, a batch and the start of the ascent and returns what a step should find: the
gradient as one flat vector, the numbers, and the model whose buffers the step leaves behind. A pass at other
weights is a deep copy of the model with these weights in it; nothing is reused, nothing restored. The tests ask
every objective of this package for the same numbers to ten digits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from torch_iam.divergence import CategoricalKL

Criterion = Callable[[Any, Any], Tensor]
Divergence = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Found:
    """What a step should find.

    Attributes:
        gradient: in ``.grad``, as one vector over all trainable weights.
        model: with the buffers that the step leaves behind.
        loss: at theta.
        objective: what was minimised.
        inconsistency: S at the delta found; None for objectives that have none.
    """

    gradient: Tensor
    model: nn.Module
    loss: Tensor
    objective: Tensor
    inconsistency: Tensor | None = None


def flat(tensors: Any) -> Tensor:
    """One vector of all tensors."""
    return parameters_to_vector(list(tensors))


class World:
    """The model as it stands, and copies of it at other weights, all seeing one random stream."""

    def __init__(self, model: nn.Module) -> None:
        self.origin = copy.deepcopy(model)
        self.origin.zero_grad()
        self.stream = torch.get_rng_state()
        self.theta = flat(weight.detach() for weight in self._weights(model))

    def at(self, theta: Tensor) -> nn.Module:
        """A copy of the model with these weights, about to draw the same random numbers."""
        model = copy.deepcopy(self.origin)
        vector_to_parameters(theta, self._weights(model))
        torch.set_rng_state(self.stream)
        return model

    def gradient(self, model: nn.Module) -> Tensor:
        """What a backward left in a copy."""
        return flat(
            torch.zeros_like(weight) if weight.grad is None else weight.grad
            for weight in self._weights(model)
        )

    def _weights(self, model: nn.Module) -> list[nn.Parameter]:
        return [weight for weight in model.parameters() if weight.requires_grad]


def scaling(model: nn.Module, eta: float) -> Tensor:
    """T of the adaptive metric: abs(theta) + eta, and 1 for biases."""
    parts = [
        torch.ones_like(weight) if "bias" in name.rpartition(".")[2] else weight.detach().abs() + eta
        for name, weight in model.named_parameters()
        if weight.requires_grad
    ]
    return flat(parts)


def mean_divergence(clean: Tensor, perturbed: Tensor, divergence: Divergence | None = None) -> Tensor:
    """E_x KL(f(x; theta) || f(x; theta + delta))."""
    return (divergence or CategoricalKL())(clean, perturbed).mean()


def slope(world: World, inputs: Tensor, clean: Tensor, delta: Tensor) -> Tensor:
    """The gradient of the divergence in delta."""
    there = world.at(world.theta + delta)
    mean_divergence(clean, there(inputs)).backward()  # type: ignore[no-untyped-call]
    return world.gradient(there)


def fisher_product(world: World, inputs: Tensor, clean: Tensor, delta: Tensor) -> Tensor:
    """F delta: the second derivative of the divergence at delta = 0, where its first one is 0."""
    here = world.at(world.theta)
    weights = [weight for weight in here.parameters() if weight.requires_grad]
    first = torch.autograd.grad(
        mean_divergence(clean, here(inputs)), weights, create_graph=True, materialize_grads=True
    )
    (flat(first) @ delta).backward()  # type: ignore[no-untyped-call]
    return world.gradient(here)


def ascent(
    world: World,
    inputs: Tensor,
    start: Tensor,
    rho: float,
    steps: int = 1,
    *,
    scale: Tensor | float = 1.0,
    movable: Tensor | float = 1.0,
    fisher: bool = False,
    worst: bool = False,
    seen: int | None = None,
) -> Tensor:
    """Algorithm 1 from ``start``.

    Args:
        world: the model.
        inputs: the batch.
        start: delta_0.
        rho: the radius.
        steps: K.
        scale: T of the metric.
        movable: 1 for weights that may move and 0 for others.
        fisher: multiply with the Fisher matrix instead of differentiating the divergence.
        worst: take the side on which the divergence is larger.
        seen: how many examples the ascent sees, from the first.
    """
    inputs = inputs[:seen]
    clean = world.at(world.theta)(inputs).detach()
    delta = start
    for _ in range(steps):
        gradient = scale * movable * (fisher_product if fisher else slope)(world, inputs, clean, delta)
        delta = rho * scale * gradient / gradient.norm()
    if worst:
        sides = [mean_divergence(clean, world.at(world.theta + side)(inputs)) for side in (delta, -delta)]
        delta = -delta if sides[1] > sides[0] else delta
    return delta


def plain(model: nn.Module, inputs: Tensor, targets: Tensor, criterion: Criterion) -> Found:
    """The gradient of the loss."""
    world = World(model)
    here = world.at(world.theta)
    loss = criterion(here(inputs), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    return Found(world.gradient(here), here, loss, loss)


def sam(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    criterion: Criterion,
    rho: float,
    *,
    scale: Tensor | float = 1.0,
    movable: Tensor | float = 1.0,
) -> Found:
    """The gradient of the loss at theta + rho T^2 g / ||T g||."""
    world = World(model)
    here = plain(model, inputs, targets, criterion)
    gradient = scale * movable * here.gradient
    there = world.at(world.theta + rho * scale * gradient / gradient.norm())
    worst = criterion(there(inputs), targets)
    worst.backward()  # type: ignore[no-untyped-call]
    return Found(world.gradient(there), here.model, here.loss, worst)


def iam_s(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    criterion: Criterion,
    rho: float,
    start: Tensor,
    steps: int = 1,
    **search: Any,
) -> Found:
    """The gradient of the loss at theta + delta."""
    world = World(model)
    delta = ascent(world, inputs, start, rho, steps, **search)
    here = world.at(world.theta)
    clean = here(inputs)
    there = world.at(world.theta + delta)
    perturbed = there(inputs)
    worst = criterion(perturbed[: len(targets)], targets)
    worst.backward()  # type: ignore[no-untyped-call]
    loss = criterion(clean[: len(targets)], targets)
    return Found(world.gradient(there), here, loss, worst, mean_divergence(clean, perturbed))


def iam_d(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    criterion: Criterion,
    rho: float,
    beta: float,
    start: Tensor,
    steps: int = 1,
    *,
    detach_reference: bool = False,
    **search: Any,
) -> Found:
    """The gradient of L + beta S; delta is a constant. ``steps=0`` takes ``start`` itself: one-pass IAM-D."""
    world = World(model)
    delta = ascent(world, inputs, start, rho, steps, **search)
    here = world.at(world.theta)
    clean = here(inputs)
    there = world.at(world.theta + delta)
    perturbed = there(inputs)
    loss = criterion(clean[: len(targets)], targets)
    inconsistency = mean_divergence(clean.detach() if detach_reference else clean, perturbed)
    objective = loss + beta * inconsistency
    objective.backward()  # type: ignore[no-untyped-call]
    return Found(world.gradient(here) + world.gradient(there), here, loss, objective, inconsistency)
