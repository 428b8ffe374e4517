"""The second moment of the per-example gradients at the given labels."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_iam.directions import Direction
from torch_iam.guards import no_autocast
from torch_iam.inputs import Output
from torch_iam.spectrum.curvature import Part
from torch_iam.spectrum.hessian import LossOperator


class EmpiricalFisherOperator(LossOperator):
    r"""The uncentred covariance of the gradients of single examples.

    .. math:: E = \frac{1}{n} \sum_i g_i g_i^\top, \qquad g_i = \nabla_\theta\, \ell(f(x_i; \theta), y_i)

    It takes the labels as given where :class:`FisherOperator` takes the expectation over the model's own, and
    is another matrix. A product costs 5 forward passes over the data; no single gradient is ever formed.

    Args:
        model, batches, criterion, options: see :class:`~torch_iam.spectrum.hessian.LossOperator`; the
            criterion must be a mean or a sum over examples.

    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> x, y = torch.randn(8, 2), torch.zeros(8).long()
    >>> empirical = EmpiricalFisherOperator(nn.Linear(2, 3), [(x, y)], nn.CrossEntropyLoss())
    >>> (empirical @ torch.ones(9)).shape
    torch.Size([9])
    """

    separable = True
    through_output_alone = True

    def _product(self, part: Part, tangent: dict[str, Tensor]) -> tuple[Direction, Tensor]:
        def outer(answer: Output, pushed: Tensor, leaves: list[Tensor]) -> tuple[Direction, Tensor]:
            logits = self.output(answer)
            with no_autocast(self.device):
                total, terms = self._total(answer, part)
                # The loss is a sum over examples: row i of its slope belongs to example i alone.
                (slope,) = torch.autograd.grad(total, logits)
                rows = (-1, *[1] * (slope.ndim - 1))
                if self.reduction.kind == "mean":  # of example i alone: the mean over its own terms
                    slope = slope / terms.clamp(min=1).to(slope.dtype).view(rows)
                along = (slope * pushed).flatten(1).sum(1) if slope.ndim > 1 else slope * pushed
                found = torch.autograd.grad(logits, leaves, slope * along.view(rows), materialize_grads=True)
            return list(found), (terms > 0).sum().to(self.dtype)

        return self.derivatives.beside_graph(part.evaluate, self.ball.here(), tangent, outer)
