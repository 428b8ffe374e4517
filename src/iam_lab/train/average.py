"""An exponential moving average of a model's weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class Average:
    r"""A second model whose weights follow those of the first.

    .. math:: \bar\theta \leftarrow d\, \bar\theta + (1 - d)\, \theta

    Buffers, such as BatchNorm's statistics, are those of the model as it is. A step that is left out as not
    finite is followed like any other, towards weights that have not moved: whether it was is known on the
    device alone, and asking would make the CPU wait.

    >>> model = nn.Linear(1, 1)
    >>> average = Average(model, decay=0.5)
    >>> with torch.no_grad(): _ = model.weight.add_(1.0)
    >>> average.update()
    >>> torch.allclose(model.weight - average.model.weight, torch.tensor(0.5))
    True
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"the decay is in [0, 1), found {decay}; try 0.999.")
        self.source, self.decay = model, decay
        self.model = copy.deepcopy(model)  # trainable, so that S_rho of it can be measured

    @torch.no_grad()
    def update(self) -> None:
        """Follow a step; a few kernels, and nothing waits."""
        weights: list[Tensor] = list(self.model.parameters())
        sources: list[Tensor] = list(self.source.parameters())
        torch._foreach_lerp_(weights, sources, 1 - self.decay)
        buffers: list[Tensor] = list(self.model.buffers())
        if buffers:
            torch._foreach_copy_(buffers, list(self.source.buffers()))

    def state_dict(self) -> dict[str, Any]:
        """The averaged model's."""
        return self.model.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.model.load_state_dict(state)
