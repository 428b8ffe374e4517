"""Gradients through a network in float16, where small ones vanish and large ones overflow."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_iam.directions import Direction, by_dtype, compute_dtype, scale_

LARGEST_SUM = 2.0**12
"""Of a slope in float16, 16 times below what overflows: products with activations are in it too."""


class LiftedSum:
    """A sum over batches of gradients in the weights, each of them pulled back from a slope at the logits.

    In float16 the slope of a mean over many positions would vanish, and a steep one overflow. There every slope
    gets a factor, which brings its largest entry to 1, or to less where a sum over all entries would overflow, as a
    bias's gradient is. The sum is kept at the smallest factor that came: batches are only ever scaled down. In any
    other dtype all factors are 1 and nothing is multiplied.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.needed = any(compute_dtype(same[0]) == torch.float16 for same in by_dtype(weights))
        self.gradient: Direction = []
        self._factor: Tensor | None = None
        self._next: Tensor | None = None

    def lift(self, slope: Tensor) -> Tensor:
        """The slope at the logits times the factor of its batch, whose gradient is added next."""
        if not self.needed:
            return slope
        largest = slope.abs().max().clamp(min=torch.finfo(slope.dtype).tiny)
        self._next = min(1.0, LARGEST_SUM / slope.numel()) / largest
        return slope * self._next

    def add(self, gradient: Direction) -> None:
        """Add what was pulled back from the lifted slope; its storage is used up."""
        if self._factor is not None and self._next is not None:
            common = torch.minimum(self._factor, self._next)
            scale_(self.gradient, common / self._factor)
            scale_(gradient, common / self._next)
            self._next = common
        self._factor = self._next
        if self.gradient:
            torch._foreach_add_(self.gradient, gradient)
        else:
            self.gradient = gradient

    def lower(self) -> None:
        """Take the factor back, in place."""
        if self._factor is not None:
            scale_(self.gradient, 1 / self._factor)
            self._factor = None
