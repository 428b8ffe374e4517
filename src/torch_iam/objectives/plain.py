"""The loss and nothing else: what everything is compared with."""

from __future__ import annotations

from torch import Tensor

from torch_iam.accumulate import accumulate
from torch_iam.objectives.base import Batch, Objective, Step, step_of


class Plain(Objective):
    r"""The gradient of the loss, as ``criterion(model(x), y).backward()`` gives it.

    .. math:: g = \nabla_\theta L(\theta)

    Cost: 3 forward passes' worth (a backward counts two).

    >>> import torch
    >>> model = torch.nn.Linear(2, 3)
    >>> step = Plain(model).backward(torch.randn(4, 2), torch.zeros(4).long(), torch.nn.CrossEntropyLoss())
    >>> step.outputs.shape
    torch.Size([4, 3])
    """

    def _differentiate(self, batch: Batch, scale: Tensor | float) -> Step:
        _, output = self._clean(batch)
        loss = batch.loss(output)
        accumulate(loss, scale)
        return step_of(loss, loss, output)
