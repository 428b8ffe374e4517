"""The matrices themselves, written out entry by entry: slow, and obviously right.

Every function takes a model as it stands (its mode included) and returns a matrix over its trainable weights
in the order of ``named_parameters()``, tied weights once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

Criterion = Callable[[Tensor, Tensor], Tensor]


def weights_of(model: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in model.parameters() if weight.requires_grad]


def flat_gradient(value: Tensor, weights: list[nn.Parameter], graph: bool = False) -> Tensor:
    found = torch.autograd.grad(value, weights, retain_graph=True, create_graph=graph, materialize_grads=True)
    return torch.cat([part.flatten() for part in found])


def rows(values: Tensor, weights: list[nn.Parameter]) -> Tensor:
    """The gradient of every one of ``values [n]``: ``[n, m]``."""
    if not values.requires_grad:  # a model linear in its weights has no second derivative
        return torch.zeros(len(values), sum(weight.numel() for weight in weights), dtype=values.dtype)
    seeds = torch.eye(len(values), dtype=values.dtype)
    found = torch.autograd.grad(
        values, weights, seeds, is_grads_batched=True, retain_graph=True, allow_unused=True
    )
    parts = [
        torch.zeros(len(values), weight.numel(), dtype=weight.dtype) if part is None else part.flatten(1)
        for weight, part in zip(weights, found, strict=True)
    ]
    return torch.cat(parts, 1)


def logits(model: nn.Module, inputs: Tensor) -> Tensor:
    """One row a position: ``[positions, C]``."""
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels cannot be differentiated twice
        return model(inputs).flatten(0, -2)


def second_derivative(value: Tensor, weights: list[nn.Parameter]) -> Tensor:
    """``[m, m]``, a row from each entry of the gradient."""
    return rows(flat_gradient(value, weights, graph=True), weights).detach()


def jacobian(model: nn.Module, inputs: Tensor) -> Tensor:
    """Derivative of every logit in every weight: ``[positions, C, m]``."""
    outputs = logits(model, inputs)
    return rows(outputs.flatten(), weights_of(model)).view(*outputs.shape, -1)


def fisher(model: nn.Module, inputs: Tensor) -> Tensor:
    """The mean over positions of J' (diag(p) - p p') J."""
    matrix, jacobians = torch.zeros(()), jacobian(model, inputs)
    for p, j in zip(logits(model, inputs).detach().softmax(-1), jacobians, strict=True):
        matrix = matrix + j.T @ (torch.diag(p) - torch.outer(p, p)) @ j
    return matrix / len(jacobians)


def gauss_newton_of_squares(model: nn.Module, inputs: Tensor) -> Tensor:
    """The mean over examples of J' J: the Fisher matrix of a Gaussian of variance 1."""
    jacobians = jacobian(model, inputs)
    return sum(j.T @ j for j in jacobians) / len(inputs)


def hessian(model: nn.Module, inputs: Tensor, targets: Tensor, criterion: Criterion) -> Tensor:
    """Of the criterion on the whole of the data at once."""
    with sdpa_kernel(SDPBackend.MATH):
        return second_derivative(criterion(model(inputs), targets), weights_of(model))


def residual(model: nn.Module, inputs: Tensor, distribution: Tensor) -> Tensor:
    """R of the paper's lemma: the mean of sum_k (p - y)_k times the second derivative of z_k.

    ``distribution``: y as probabilities, ``[positions, C]``.
    """
    outputs = logits(model, inputs)
    coefficients = (outputs.softmax(-1) - distribution).detach()
    return second_derivative((coefficients * outputs).sum(), weights_of(model)) / len(outputs)


def empirical_fisher(model: nn.Module, inputs: Tensor, targets: Tensor, criterion: Criterion) -> Tensor:
    """The mean of g g' over examples, each alone in its batch."""
    weights = weights_of(model)
    matrix = torch.zeros(())
    for i in range(len(inputs)):
        with sdpa_kernel(SDPBackend.MATH):
            g = flat_gradient(criterion(model(inputs[i : i + 1]), targets[i : i + 1]), weights)
        matrix = matrix + torch.outer(g, g)
    return matrix / len(inputs)
