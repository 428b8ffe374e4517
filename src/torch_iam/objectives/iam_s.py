"""IAM-S: the loss where the outputs differ most."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn

from torch_iam.accumulate import accumulate
from torch_iam.inputs import Output
from torch_iam.objectives.base import Batch, Step, step_of
from torch_iam.objectives.inconsistency import InconsistencyObjective, SearchOptions


class IAMS(InconsistencyObjective):
    r"""The gradient of the loss at the nearby weights whose outputs differ most from those here.

    .. math:: g = \nabla_\theta L(\theta + \delta), \qquad
        \delta = \arg\max_{\|\delta\| \le \rho} \mathbb{E}_x\, \mathrm{KL}(f(x; \theta) \| f(x; \theta + \delta))

    Cost: 4 + 3 K forward passes' worth with K ascent steps.

    Args:
        model: the network.
        rho: the radius; 0.1 on CIFAR-10.
        options: as for :class:`IAMD`, but ``beta``, ``detach_reference`` and ``lean``.

    >>> model = nn.Linear(2, 3)
    >>> step = IAMS(model, rho=0.1).backward(torch.randn(4, 2), torch.zeros(4).long(), nn.CrossEntropyLoss())
    >>> bool(step.inconsistency > 0)
    True
    """

    def __init__(self, model: nn.Module, rho: float = 0.1, **options: Unpack[SearchOptions]) -> None:
        super().__init__(model, rho, **options)
        if self.maximizer.one_pass:
            raise ValueError(
                "IAMS never differentiates the divergence where it ends, so there is no direction to carry "
                "without an ascent step: write start='carry', steps=1."
            )

    def _differentiate(self, batch: Batch, scale: Tensor | float) -> Step:
        visit, clean = self._clean(batch, graph=False)
        with torch.no_grad():
            logits = self.output(clean)
            visit.fork.passed()
            loss = batch.loss(clean)

        def descend(output: Output) -> tuple[Tensor, Tensor]:
            value = batch.loss(output)
            accumulate(value, scale)
            with torch.no_grad():
                return value.detach(), self._inconsistency(visit, logits, self.output(output))

        with visit.fork.beside():
            climb = self.maximizer.find(visit, logits, self._loss_gradient(visit, batch))
            worst, inconsistency = visit.at(self.ball.moved(climb.delta, leaf=False), descend)
        visit.fork.join()
        return step_of(loss, worst, clean, inconsistency, climb.ok)
