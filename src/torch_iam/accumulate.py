"""Into ``.grad``: a backward pass, joined by gradients that are known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torch_iam.guards import no_autocast

Known = Sequence[tuple[Tensor, "Tensor | None"]]
"""Tensors with gradients that reach them from elsewhere; None is none."""


def accumulate(
    value: Tensor,
    factor: Tensor | float = 1.0,
    known: Known = (),
    weights: Known = (),
    join: Callable[[], None] = lambda: None,
) -> None:
    """Add the gradient of ``factor * value`` into ``.grad``, and to it what is known.

    Outside the caller's autocast: a backward pass follows the dtypes of its forward pass.

    Args:
        value: one number; or any tensor, with a factor of its shape.
        factor: on its gradient alone: what reaches it from elsewhere.
        known: tensors inside the graph, with gradients that flow on through it.
        weights: leaves, with gradients that join theirs as they are.
        join: called before these are read, and once more: another stream may be at work on them.

    >>> w = torch.tensor(3.0, requires_grad=True)
    >>> square = w * w
    >>> accumulate(2 * square, 10.0, known=[(square, torch.tensor(1.0))], weights=[(w, torch.tensor(1000.0))])
    >>> w.grad
    tensor(1126.)
    """
    inside = [(tensor, gradient) for tensor, gradient in known if gradient is not None]
    early: list[tuple[Tensor, Tensor]] = []
    later: list[tuple[Tensor, Tensor]] = []
    behind = nobody_waits()
    for weight, gradient in weights:
        if gradient is not None:
            (later if behind and not _watched(weight) else early).append((weight, gradient))
    outer = (
        factor.to(value).reshape(value.shape)
        if isinstance(factor, Tensor)
        else torch.full_like(value, factor)
    )
    if early:
        join()
    with no_autocast(value.device):
        roots = [(value, outer), *inside, *early]
        torch.autograd.backward([tensor for tensor, _ in roots], [gradient for _, gradient in roots])
    join()
    both = [(weight.grad, gradient) for weight, gradient in later if weight.grad is not None]
    if both:
        torch._foreach_add_([there for there, _ in both], [gradient for _, gradient in both])
    for weight, gradient in later:
        if weight.grad is None:
            weight.grad = gradient


def nobody_waits() -> bool:
    """Whether gradients may be added behind autograd's back, by one kernel where it launches one for each weight.

    Only while a CUDA graph is captured, where kernels count. Elsewhere a hook may send the gradient to other ranks
    or be an optimizer's step, and those on autograd's own nodes cannot be seen from here.
    """
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _watched(weight: Tensor) -> bool:
    """Whether a hook is to see the whole gradient at once."""
    return bool(weight._backward_hooks or weight._post_accumulate_grad_hooks)
