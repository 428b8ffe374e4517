"""The two derivatives that curvature needs, each with the fewest passes: J v beside a graph, and H v."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_iam.directions import Direction
from torch_iam.inputs import Output
from torch_iam.perturb import jacobian_vector

Weights = dict[str, Tensor]

BREAKS = ("ZeroTensor", "view size is not compatible")
"""What PyTorch says where forward mode breaks: over the backward of mse_loss, in group_norm on channels_last."""


@contextmanager
def differentiable_twice() -> Iterator[None]:
    """Attention by its plain formula: the fused kernels have no second derivative and no forward mode."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def leaves_of(weights: Mapping[str, Tensor]) -> Weights:
    """The same numbers as tensors to take a gradient at."""
    return {name: weight.detach().requires_grad_() for name, weight in weights.items()}


def linearized(
    function: Callable[[Weights], Output],
    read: Callable[[Output], Tensor],
    leaves: Weights,
    tangent: Mapping[str, Tensor],
) -> tuple[Output, Tensor]:
    """An answer with its graph, and J v of the tensor in it, out of one forward pass.

    The pass carries tangents beside values: 3 forward passes' worth where a pass of its own for each would
    cost 4. Where an operation has no forward mode, two reverses stand in.
    """
    try:
        with torch.enable_grad(), forward_ad.dual_level():
            duals = {name: forward_ad.make_dual(leaf, tangent[name]) for name, leaf in leaves.items()}  # type: ignore[no-untyped-call]
            answer = function(duals)
            pushed = _tangent(read(answer))
        return answer, pushed
    except RuntimeError as error:
        if not _forward_mode_broke(error):
            raise
        pushed = jacobian_vector(lambda weights: read(function(weights)), leaves, tangent)
    with torch.enable_grad():
        return function(leaves), pushed


def pushed_along(
    function: Callable[[Weights], Output],
    read: Callable[[Output], Tensor],
    weights: Mapping[str, Tensor],
    tangent: Mapping[str, Tensor],
) -> tuple[Tensor, Tensor]:
    """The tensor in an answer and its J v, without a graph: forward mode keeps no activations."""
    try:
        with torch.no_grad(), forward_ad.dual_level():
            duals = {
                name: forward_ad.make_dual(weight.detach(), tangent[name])  # type: ignore[no-untyped-call]
                for name, weight in weights.items()
            }
            found = read(function(duals))
            return forward_ad.unpack_dual(found).primal, _tangent(found)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if not _forward_mode_broke(error):
            raise
        answer, pushed = linearized(function, read, leaves_of(weights), tangent)
        return read(answer).detach(), pushed


def change_of_gradient(
    gradient: Callable[[Weights, list[Tensor], bool], Sequence[Tensor]],
    leaves: Weights,
    tangent: Mapping[str, Tensor],
) -> Direction:
    """The directional derivative of a gradient: forward mode over reverse, else two reverses.

    Args:
        gradient: of ``(weights, leaves, create_graph)``: evaluates at ``weights`` and differentiates in
            ``leaves``.
        leaves: where.
        tangent: along what.
    """
    inputs = list(leaves.values())
    try:
        with torch.enable_grad(), forward_ad.dual_level():
            duals = {name: forward_ad.make_dual(leaf, tangent[name]) for name, leaf in leaves.items()}  # type: ignore[no-untyped-call]
            return [_tangent(part) for part in gradient(duals, inputs, False)]
    except RuntimeError as error:
        if not _forward_mode_broke(error):
            raise
    with torch.enable_grad():
        curved = [
            (part, tangent[name])
            for name, part in zip(leaves, gradient(leaves, inputs, True), strict=True)
            if part.requires_grad
        ]
        if not curved:
            return [torch.zeros_like(leaf) for leaf in inputs]
        parts, along = zip(*curved, strict=True)
        return list(torch.autograd.grad(parts, inputs, along, materialize_grads=True))


def _forward_mode_broke(error: RuntimeError) -> bool:
    """Whether it lacks an operation, or fails in one that itself is fine."""
    return isinstance(error, NotImplementedError) or any(text in str(error) for text in BREAKS)


def _tangent(tensor: Tensor) -> Tensor:
    found = forward_ad.unpack_dual(tensor).tangent  # type: ignore[no-untyped-call]
    return torch.zeros_like(tensor).detach() if found is None else found.detach()
