"""Sharpness-aware minimisation, the labelled counterpart of IAM-S, and its adaptive variant."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor, nn

from torch_iam.accumulate import accumulate
from torch_iam.inputs import Output
from torch_iam.objectives.base import Batch, Step, step_of
from torch_iam.objectives.perturbed import BallOptions, PerturbedObjective, refuse_unknown
from torch_iam.perturb import gradients


class SAM(PerturbedObjective):
    r"""The gradient of the loss at the worst point nearby, to first order (Foret et al., 2021).

    .. math:: g = \nabla_\theta L(\theta + \delta), \qquad
        \delta = \rho\, \frac{T^2 \nabla L(\theta)}{\|T \nabla L(\theta)\|}

    with T = 1, or T = abs(theta) + eta for ``metric="adaptive"`` (:class:`ASAM`).
    Cost: 6 forward passes' worth.

    Args:
        model: the network.
        rho: the radius; 0.05 on CIFAR-10.
        params: which weights move, see :class:`~torch_iam.Neighborhood`.
        metric: ``"euclidean"`` or ``"adaptive"``.
        eta: of the adaptive metric.
        sub_batch: m, see :class:`~torch_iam.objectives.base.Objective`.
        output: likewise.
        sync: on several devices, ``"local"`` for a delta on every rank, ``"global"`` for one of all.
        check: see :class:`~torch_iam.objectives.base.Objective`.

    >>> import torch
    >>> model = nn.Linear(2, 3)
    >>> step = SAM(model, rho=0.05).backward(torch.randn(4, 2), torch.zeros(4).long(), nn.CrossEntropyLoss())
    >>> bool(step.objective > step.loss)
    True
    """

    def __init__(self, model: nn.Module, rho: float = 0.05, **options: Unpack[BallOptions]) -> None:
        refuse_unknown(type(self), options, BallOptions)
        super().__init__(model, rho, **options)

    def _differentiate(self, batch: Batch, scale: Tensor | float) -> Step:
        visit, output = self._clean(batch)
        loss = batch.loss(output)
        uphill = gradients(loss, self.ball.weights)
        if self.combine is not None:
            self.combine(uphill)
        delta, ok = self.ball.to_sphere(uphill)

        def descend(there: Output) -> Tensor:
            value = batch.loss(there)
            accumulate(value, scale)
            return value.detach()

        worst = visit.at(self.ball.moved(delta, leaf=False), descend)
        return step_of(loss, worst, output, perturbed=ok)


class ASAM(SAM):
    """SAM in the adaptive metric, where rescaling a layer changes nothing (Kwon et al., 2021).

    Args:
        model: the network.
        rho: the radius in the metric; 0.5 on CIFAR-10.
        options: as for :class:`SAM`; ``eta``, added to the weights' size, is 0.01 as in the paper.

    >>> ASAM(nn.Linear(2, 3), rho=0.5).ball.metric
    'adaptive'
    """

    def __init__(self, model: nn.Module, rho: float = 0.5, **options: Unpack[BallOptions]) -> None:
        options.setdefault("metric", "adaptive")
        super().__init__(model, rho, **options)
