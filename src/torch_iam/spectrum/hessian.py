"""The Hessian of a loss, and what of it the Fisher matrix leaves over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn

from torch_iam.directions import Direction
from torch_iam.guards import no_autocast
from torch_iam.inputs import Inputs, Output
from torch_iam.selection import Params
from torch_iam.spectrum.criterion import Criterion, evaluated, refuse_other_paths, refuse_own_weights
from torch_iam.spectrum.curvature import CurvatureOperator, Part
from torch_iam.spectrum.labels import labelled_batches_of
from torch_iam.spectrum.reduction import Reduction, reduction_of


class LossOperator(CurvatureOperator):
    """A curvature matrix of a loss over labelled batches.

    Batches are weighted by the terms of the criterion's mean: examples, or positions where there is a class
    for every position, targets that the criterion ignores left out.

    Args:
        model: the network.
        batches: an iterable of ``(inputs, labels)`` or of mappings with labels in them; one pair of tensors.
        criterion: ``(model output, labels) -> scalar``, a mean over the examples of a batch. A sum is noticed
            and divided by their number; anything else is refused where there are several batches or pieces.
        params: which weights, see :class:`~torch_iam.Neighborhood`.
        batch_size: cut larger batches into pieces of this many examples, to bound memory.
        split: a batch to ``(inputs, labels)``, where that is not its first two elements.
        output: which tensor of the model's answer counts, where it is not found by itself.
        training: take the model in training mode, with its random masks held still.
    """

    separable = False
    """Whether the matrix takes the loss of each example for itself."""
    through_output_alone = False
    """Whether the matrix differentiates the loss in the output that counts, and in nothing else."""

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable[Any],
        criterion: Criterion,
        *,
        params: Params = None,
        batch_size: int | None = None,
        split: Callable[[Any], tuple[Inputs, Any]] | None = None,
        output: Callable[[Output], Tensor] | None = None,
        training: bool = False,
    ) -> None:
        if isinstance(criterion, type) or not callable(criterion):
            raise TypeError(
                "criterion is a function (model output, labels) -> scalar, such as nn.CrossEntropyLoss() with its "
                f"parentheses; found {criterion!r}."
            )
        found = labelled_batches_of(batches, split)
        super().__init__(model, found, params=params, output=output, training=training)
        self.criterion = criterion
        self.blank: list[Part] = []  # without a term
        self.reduction = self._examined()
        if self.separable or len(self.parts) > 1:
            self._refuse_what_does_not_add_up()
        self._drop_parts_without_terms()
        if batch_size is not None:
            self.cut(batch_size)

    def _examined(self) -> Reduction:
        """What the criterion does over a batch, where it is one that can be differentiated here."""
        data = [(part.visit.inputs, part.targets) for part in self.parts]
        first = self.parts[0]

        def evaluate(inputs: Inputs) -> Output:
            return first.visit.elsewhere(inputs).at({}, eager=True)

        with torch.no_grad(), self._held():
            found = reduction_of(self.criterion, data, evaluate, self.output)
            answer = evaluate(first.visit.inputs)
            weights = dict(zip(self.ball.names, self.ball.weights, strict=True))
            refuse_own_weights(self.criterion, answer, first.targets, weights)
            if self.through_output_alone:
                refuse_other_paths(self.criterion, answer, first.targets, first.size, self.output)
        return found

    def cut(self, limit: int) -> None:
        """See :meth:`CurvatureOperator.cut`."""
        before = len(self.parts)
        super().cut(limit)
        if len(self.parts) > before:
            self._refuse_what_does_not_add_up()
        self._drop_parts_without_terms()

    def counted(self) -> int:
        """How many examples have a term in the mean."""
        terms = [self.reduction.terms(part.targets, part.size) for part in self.parts]
        return sum(int((found > 0).sum()) for found in terms)

    def loss(self) -> float:
        """The criterion averaged over all of its terms."""
        sums, counts = [], []
        with torch.no_grad(), self._held():
            for part in self.parts:
                total, terms = self._total(part.visit.at({}, eager=True), part)
                sums.append(total.double())
                counts.append(terms.sum())
        return float(torch.stack(sums).sum() / torch.stack(counts).sum())

    def _total(self, answer: Output, part: Part) -> tuple[Tensor, Tensor]:
        """The loss summed over the terms of a batch, and how many of these each example is."""
        value = evaluated(self.criterion, answer, part.targets, part.batch).reshape(())
        terms = self.reduction.terms(part.targets, part.size).to(self.device)
        return (value * terms.sum().to(value.dtype) if self.reduction.kind == "mean" else value), terms

    def _refuse_what_does_not_add_up(self) -> None:
        if self.reduction.refused is not None:
            raise ValueError(
                "The criterion is neither a mean nor a sum over examples, so that batches (or pieces of them, "
                f"batch_size=) cannot be added up: {self.reduction.refused}. Class weights do this: use "
                "reduction='sum' with them. A loss that couples examples takes one batch only."
            )

    def _drop_parts_without_terms(self) -> None:
        """A mean over no terms is 0 / 0."""
        if self.reduction.ignored is None:
            return
        counts = [bool(self.reduction.terms(part.targets, part.size).any()) for part in self.parts]
        self.blank += [part for part, some in zip(self.parts, counts, strict=True) if not some]
        self.parts = [part for part, some in zip(self.parts, counts, strict=True) if some]
        if not self.parts:
            raise ValueError(f"Every target is {self.reduction.ignored}, which the criterion ignores.")


class HessianOperator(LossOperator):
    r"""The Hessian of a loss over labelled batches.

    .. math:: H = \nabla_\theta^2\, \frac{1}{n} \sum_i \ell(f(x_i; \theta), y_i)

    A product costs about 9 forward passes over the data, by forward mode over reverse.

    Args:
        model, batches, criterion, options: see :class:`~torch_iam.spectrum.hessian.LossOperator`.

    >>> _ = torch.manual_seed(0)
    >>> x, y = torch.randn(8, 2), torch.zeros(8).long()
    >>> hessian = HessianOperator(nn.Linear(2, 3), [(x, y)], nn.CrossEntropyLoss())
    >>> (hessian @ torch.ones(9)).shape
    torch.Size([9])
    """

    def _product(self, part: Part, tangent: dict[str, Tensor]) -> tuple[Direction, Tensor]:
        def gradient(answer: Output, leaves: list[Tensor], create_graph: bool) -> Sequence[Tensor]:
            with no_autocast(self.device):
                return self._gradient(answer, part, leaves, create_graph)

        found = self.derivatives.of_gradient(part.evaluate, gradient, self.ball.here(), tangent)
        return found, self.reduction.terms(part.targets, part.size).sum().to(self.device)

    def _gradient(
        self, answer: Output, part: Part, leaves: list[Tensor], create_graph: bool
    ) -> Sequence[Tensor]:
        total, _ = self._total(answer, part)
        return torch.autograd.grad(total, leaves, create_graph=create_graph, materialize_grads=True)


class ResidualOperator(HessianOperator):
    r"""What the Gauss-Newton matrix, which for the cross-entropy is the Fisher matrix, leaves of the Hessian.

    .. math:: R = H - F = \frac{1}{n} \sum_i \sum_k \frac{\partial \ell_i}{\partial z_{ik}}\,
        \nabla_\theta^2 z_k(x_i; \theta)

    with p - y as the derivative for the cross-entropy, label smoothing in y. A product costs what one with
    the Hessian does, less than that of H and that of F. For another criterion R is not H - F: write
    ``hessian - fisher``.

    Args:
        model, batches, criterion, options: see :class:`~torch_iam.spectrum.hessian.LossOperator`.

    >>> _ = torch.manual_seed(0)
    >>> x, y = torch.randn(8, 2), torch.zeros(8).long()
    >>> residual = ResidualOperator(nn.Linear(2, 3), [(x, y)], nn.CrossEntropyLoss())
    >>> float((residual @ torch.ones(9)).norm())  # a linear model has none
    0.0
    """

    through_output_alone = True

    def _gradient(
        self, answer: Output, part: Part, leaves: list[Tensor], create_graph: bool
    ) -> Sequence[Tensor]:
        logits = self.output(answer)
        total, _ = self._total(answer, part)
        (slope,) = torch.autograd.grad(total, logits, retain_graph=True)
        level = forward_ad._current_level
        still = (slope if level < 0 else forward_ad.unpack_dual(slope).primal).detach()  # type: ignore[no-untyped-call]
        return torch.autograd.grad(logits, leaves, still, create_graph=create_graph, materialize_grads=True)
