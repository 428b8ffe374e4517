"""The usual numbers in one call: the largest eigenvalue and the trace of the Fisher matrix and the Hessian."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from torch_iam.inputs import Inputs
from torch_iam.spectrum.criterion import Criterion
from torch_iam.spectrum.curvature import CurvatureOperator
from torch_iam.spectrum.fisher import FisherOperator
from torch_iam.spectrum.hessian import HessianOperator
from torch_iam.spectrum.krylov import Progress
from torch_iam.spectrum.lanczos import top_eigenpairs
from torch_iam.spectrum.trace import TraceEstimate, trace

PIECE = 32
"""Examples of a batch that share a probe of the trace, on a CPU; eight times as many elsewhere."""


@dataclass(frozen=True)
class Eigenvalue:
    """A measured eigenvalue.

    Attributes:
        value: the eigenvalue.
        residual: ``||A v - lambda v||``. Some eigenvalue is as near as that, and almost always it is the
            largest one; of two nearly equal ones the search may have met the smaller alone.
        matvecs: products with the matrix.
        converged: whether the residual met the tolerance.
        vector: the eigenvector, by the weights' names.
    """

    value: float
    residual: float
    matvecs: int
    converged: bool
    vector: dict[str, Tensor] = field(repr=False)

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        """One line, as ``print`` shows it."""
        state = "" if self.converged else ", not converged"
        return f"{self.value:.4g}   residual {self.residual:.1g}, {self.matvecs} products{state}"


def fisher_lambda_max(
    model: nn.Module,
    inputs: Inputs | Iterable[Any],
    *,
    tolerance: float = 1e-3,
    max_matvecs: int | None = None,
    start: Mapping[str, Tensor] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Eigenvalue:
    r"""The largest eigenvalue of the Fisher matrix, from inputs alone.

    :math:`\frac{1}{2} \rho^2 \lambda_{\max}(F)` is S_rho in the limit of small rho.

    Args:
        model: any module that yields logits.
        inputs: a tensor, tuple or dict that the model takes, or an iterable of batches, labels ignored.
        tolerance: relative residual to stop at.
        max_matvecs: see :func:`~torch_iam.top_eigenpairs`.
        start: where to begin, by the weights' names: the ``direction`` of an :class:`~torch_iam.Estimate` of
            the same model saves products, as it comes from a random start; see
            :func:`~torch_iam.top_eigenpairs`. By default at random.
        seed: of the random start.
        progress: called with the products so far and the relative residual.
        options: of :class:`~torch_iam.FisherOperator`: ``divergence``, ``params``, ``batch_size``, ...

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> found = fisher_lambda_max(nn.Linear(2, 3), torch.randn(8, 2))
    >>> 0 < float(found) < 10, found.converged
    (True, True)
    """
    return _largest(FisherOperator(model, inputs, **options), tolerance, max_matvecs, start, seed, progress)


def hessian_lambda_max(
    model: nn.Module,
    batches: Iterable[Any],
    criterion: Criterion,
    *,
    tolerance: float = 1e-3,
    max_matvecs: int | None = None,
    start: Mapping[str, Tensor] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Eigenvalue:
    """The largest eigenvalue of the Hessian of a loss, which takes labels.

    Args:
        model: the network.
        batches: an iterable of ``(inputs, labels)``.
        criterion: ``(model output, labels) -> scalar``, a mean over the batch.
        tolerance: relative residual to stop at.
        max_matvecs: see :func:`~torch_iam.top_eigenpairs`.
        start: where to begin, by the weights' names: the ``direction`` of an :class:`~torch_iam.Estimate` of
            the same model saves products, as it comes from a random start; see
            :func:`~torch_iam.top_eigenpairs`. By default at random.
        seed: of the random start.
        progress: called with the products so far and the relative residual.
        options: of :class:`~torch_iam.HessianOperator`: ``params``, ``batch_size``, ``split``, ...

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> batches = [(torch.randn(8, 2), torch.zeros(8).long())]
    >>> float(hessian_lambda_max(nn.Linear(2, 3), batches, nn.CrossEntropyLoss())) > 0
    True
    """
    matrix = HessianOperator(model, batches, criterion, **options)
    return _largest(matrix, tolerance, max_matvecs, start, seed, progress)


def fisher_trace(
    model: nn.Module,
    inputs: Inputs | Iterable[Any],
    *,
    method: str = "hutch++",
    tolerance: float = 0.01,
    max_matvecs: int = 300,
    seed: int = 0,
    progress: Progress | None = None,
    batch_size: int | None = None,
    **options: Any,
) -> TraceEstimate:
    """The trace of the Fisher matrix, from inputs alone.

    Args:
        model: any module that yields logits.
        inputs: a tensor, tuple or dict that the model takes, or an iterable of batches, labels ignored.
        method: see :func:`~torch_iam.trace`.
        tolerance: relative standard error to stop at.
        max_matvecs: see :func:`~torch_iam.trace`.
        seed: of the probes.
        progress: called with the products so far and the relative standard error.
        batch_size: cut larger batches into pieces of this many examples, each with probes of its own; by
            default 32 on a CPU and 256 elsewhere, and not at all with a divergence that is not known to take
            each example for itself.
        options: of :class:`~torch_iam.FisherOperator`.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> found = fisher_trace(nn.Linear(2, 3), torch.randn(64, 2), tolerance=0.05)
    >>> 0 < found.stderr <= 0.05 * found.value
    True
    """
    matrix = FisherOperator(model, inputs, batch_size=batch_size, **options)
    if batch_size is None and matrix.separable:
        matrix.cut(_piece(matrix))
    return trace(matrix, method, tolerance=tolerance, max_matvecs=max_matvecs, seed=seed, progress=progress)


def hessian_trace(
    model: nn.Module,
    batches: Iterable[Any],
    criterion: Criterion,
    *,
    method: str = "hutch++",
    tolerance: float = 0.01,
    max_matvecs: int = 300,
    seed: int = 0,
    progress: Progress | None = None,
    batch_size: int | None = None,
    **options: Any,
) -> TraceEstimate:
    """The trace of the Hessian of a loss, which takes labels.

    Args:
        model: the network.
        batches: an iterable of ``(inputs, labels)``.
        criterion: ``(model output, labels) -> scalar``, a mean over the batch.
        method: see :func:`~torch_iam.trace`.
        tolerance: relative standard error to stop at. A trace close to 0 may not meet it.
        max_matvecs: see :func:`~torch_iam.trace`.
        seed: of the probes.
        progress: called with the products so far and the relative standard error.
        batch_size: cut larger batches into pieces of this many examples, each with probes of its own; by
            default 32 on a CPU and 256 elsewhere, and not at all with a criterion that is neither a mean nor a
            sum.
        options: of :class:`~torch_iam.HessianOperator`.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> batches = [(torch.randn(64, 2), torch.zeros(64).long())]
    >>> float(hessian_trace(nn.Linear(2, 3), batches, nn.CrossEntropyLoss(), tolerance=0.05)) > 0
    True
    """
    matrix = HessianOperator(model, batches, criterion, batch_size=batch_size, **options)
    if batch_size is None and matrix.reduction.refused is None:
        matrix.cut(_piece(matrix))
    return trace(matrix, method, tolerance=tolerance, max_matvecs=max_matvecs, seed=seed, progress=progress)


def _largest(
    matrix: CurvatureOperator,
    tolerance: float,
    max_matvecs: int | None,
    start: Mapping[str, Tensor] | None,
    seed: int,
    progress: Progress | None,
) -> Eigenvalue:
    found = top_eigenpairs(
        matrix,
        tolerance=tolerance,
        max_matvecs=max_matvecs,
        start=None if start is None else matrix.vector_of(start),
        seed=seed,
        progress=progress,
    )
    return Eigenvalue(
        value=float(found.values[0]),
        residual=float(found.residuals[0]),
        matvecs=found.iterations,
        converged=found.converged,
        vector=matrix.by_name(found.vectors[:, 0]),
    )


def _piece(matrix: CurvatureOperator) -> int:
    return PIECE if matrix.device.type == "cpu" else 8 * PIECE
