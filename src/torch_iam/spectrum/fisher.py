"""The Fisher matrix: how fast the outputs move, from inputs alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from torch_iam.directions import Direction
from torch_iam.divergence import (
    BernoulliKL,
    CategoricalKL,
    Divergence,
    GaussianKL,
    SimilarityKL,
    curvature_product,
)
from torch_iam.guards import no_autocast
from torch_iam.inputs import Inputs, Output, batches_of
from torch_iam.selection import Params
from torch_iam.spectrum.curvature import CurvatureOperator, Part


class FisherOperator(CurvatureOperator):
    r"""The Fisher matrix of a model over inputs, without labels.

    .. math:: F = \mathbb{E}_x\, J^\top \Lambda\, J, \qquad J = \nabla_\theta z(x; \theta), \quad
        \Lambda = \mathrm{diag}(p) - p p^\top

    for logits z and p = softmax(z); for another divergence Lambda is its second derivative in its second
    argument. It equals the Gauss-Newton matrix of the cross-entropy. A product costs 5 forward passes over
    the data, a quadratic form 3.

    Args:
        model: any module that yields logits.
        inputs: a tensor, tuple or dict that the model takes, or an iterable of batches, labels ignored.
        divergence: :class:`~torch_iam.CategoricalKL` by default.
        params: which weights, see :class:`~torch_iam.Neighborhood`.
        batch_size: cut larger batches into pieces of this many examples, to bound memory. A divergence that
            compares the examples of a batch, as :class:`~torch_iam.SimilarityKL` does, is then another one.
        inputs_of: what of a batch the model takes, where that is not its first element.
        output: which tensor of the model's answer counts, where it is not found by itself.
        training: take the model in training mode, with its random masks held still.

    >>> _ = torch.manual_seed(0)
    >>> fisher = FisherOperator(nn.Linear(2, 3), torch.randn(8, 2))
    >>> fisher.shape, (fisher @ torch.ones(9)).shape, (fisher @ torch.ones(9, 2)).shape
    ((9, 9), torch.Size([9]), torch.Size([9, 2]))
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Inputs | Iterable[Any],
        *,
        divergence: Divergence | None = None,
        params: Params = None,
        batch_size: int | None = None,
        inputs_of: Callable[[Any], Inputs] | None = None,
        output: Callable[[Output], Tensor] | None = None,
        training: bool = False,
    ) -> None:
        found = batches_of(inputs, None, inputs_of)
        super().__init__(
            model, ((batch, None) for batch in found), params=params, output=output, training=training
        )
        self.divergence = CategoricalKL() if divergence is None else divergence
        if batch_size is not None:
            self.cut(batch_size)

    @property
    def separable(self) -> bool:
        """Whether the divergence is known to take each example for itself, so that pieces add up."""
        kind = self.divergence
        rowwise = isinstance(kind, SimilarityKL) and kind.axis == "projection"
        return rowwise or isinstance(kind, CategoricalKL | BernoulliKL | GaussianKL)

    def _product(self, part: Part, tangent: dict[str, Tensor]) -> tuple[Direction, Tensor]:
        def pulled(answer: Output, pushed: Tensor, leaves: list[Tensor]) -> tuple[Direction, Tensor]:
            logits = self.output(answer)
            curved, count = curvature_product(self.divergence, logits.detach(), pushed, part.visit.inputs)
            with no_autocast(self.device):
                found = torch.autograd.grad(logits, leaves, curved.to(logits.dtype), materialize_grads=True)
            return list(found), count

        return self.derivatives.beside_graph(part.evaluate, self.ball.here(), tangent, pulled)

    def _quadratic(self, part: Part, vector: Tensor) -> tuple[Tensor, Tensor]:
        logits, pushed = self.derivatives.pushed(part.evaluate, self.ball.here(), self.by_name(vector))
        curved, count = curvature_product(self.divergence, logits, pushed, part.visit.inputs)
        return (curved * pushed).sum(), count
