"""The paper's generalisation bound, term by term."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torch_iam.directions import resolution, total_norm
from torch_iam.inputs import Inputs, Output
from torch_iam.selection import Params, check_rho
from torch_iam.spectrum.criterion import Criterion
from torch_iam.spectrum.fisher import FisherOperator
from torch_iam.spectrum.hessian import HessianOperator, ResidualOperator
from torch_iam.spectrum.krylov import Progress, generator_of
from torch_iam.spectrum.lanczos import top_eigenpairs
from torch_iam.spectrum.operator import Operator


@dataclass(frozen=True)
class GeneralizationBound:
    """The terms of the bound, and what they are made of.

    Attributes:
        loss: L_S, the mean loss on the data.
        curvature: rho² / 2 (lambda_max(F) + epsilon_R).
        third_order: C m^(3/2) rho³ / 6.
        complexity: the term that shrinks with the number of examples.
        loss_bound: L, what the loss is assumed to stay below.
        lambda_max: the largest eigenvalue of the Fisher matrix.
        epsilon_r: the spectral norm of H - F, measured or assumed.
        weights: m, how many weights.
        weight_norm: the norm of theta.
        examples: n, of those with a target that the criterion does not ignore.
        rho: the radius.
        xi: the probability with which the bound may fail.
        converged: whether the measured eigenvalues met the tolerance.
    """

    loss: float
    curvature: float
    third_order: float
    complexity: float
    loss_bound: float
    lambda_max: float
    epsilon_r: float
    weights: int
    weight_norm: float
    examples: int
    rho: float
    xi: float
    converged: bool

    @property
    def total(self) -> float:
        """The bound on the expected loss."""
        return self.loss + self.curvature + self.third_order + self.complexity

    @property
    def vacuous(self) -> bool:
        """Whether it says no more than that the loss stays below its bound."""
        return not self.total < self.loss_bound

    def __str__(self) -> str:
        """One line, as ``print`` shows it."""
        verdict = (
            f"vacuous: the loss stays below {self.loss_bound:g} anyway" if self.vacuous else "not vacuous"
        )
        return (
            f"{self.total:.4g} = loss {self.loss:.4g} + curvature {self.curvature:.4g} + third order "
            f"{self.third_order:.4g} + complexity {self.complexity:.4g}   ({verdict})"
        )


def generalization_bound(
    model: nn.Module,
    batches: Iterable[Any],
    criterion: Criterion,
    rho: float,
    *,
    loss_bound: float,
    third_derivative_bound: float,
    xi: float = 0.05,
    epsilon_r: float | None = None,
    constant: float = 0.0,
    tolerance: float = 1e-3,
    seed: int = 0,
    params: Params = None,
    batch_size: int | None = None,
    split: Callable[[Any], tuple[Inputs, Any]] | None = None,
    output: Callable[[Output], Tensor] | None = None,
    progress: Progress | None = None,
) -> GeneralizationBound:
    r"""The terms of the paper's bound on the expected loss, from training data.

    .. math:: L_S(\theta) + \frac{\rho^2}{2} \big(\lambda_{\max}(F) + \varepsilon_R\big)
        + \frac{C m^{3/2} \rho^3}{6}
        + \frac{L}{2 \sqrt n} \sqrt{m \log\Big(1 + \frac{\|\theta\|^2}{\rho^2}\Big)
        + 2 \log\frac{1}{\xi} + 4 \log(n + m) + O(1)}

    F is the Fisher matrix of the model's softmax over all inputs, and epsilon_R the norm of H - F for the
    Hessian H of the criterion as it is. For the cross-entropy that difference is the residual R, with
    products of its own; whether it is here is tried on a random vector. Where it is not (a temperature,
    another loss, targets that are left out) the norm is that of H - F itself, at 14 forward passes a product
    in place of 9.

    It holds with probability 1 - xi, if the loss stays below L, its third derivatives below C, and noise of
    standard deviation rho / sqrt(m) on the weights does not lower the expected loss. For any network of
    today it is vacuous, by orders of magnitude: the complexity term alone is about
    L / 2 sqrt(m / n log(...)), above L as soon as there are more weights than examples. Its use is to see
    which term a training method changes.

    Args:
        model: the network.
        batches: the training data, an iterable of ``(inputs, labels)``.
        criterion: the cross-entropy as a rule, ``(model output, labels) -> scalar``, a mean over the batch.
        rho: the radius.
        loss_bound: L. The cross-entropy has none; this is the user's assumption, for example log(classes)
            times a factor, or the value at which losses are clipped.
        third_derivative_bound: C, which nothing here can measure; 0 leaves the term out.
        xi: the probability with which the bound may fail.
        epsilon_r: the norm of H - F; None measures it, a number is taken as assumed (0 at interpolation).
        constant: what stands for O(1).
        tolerance: relative residual of the eigenvalues.
        seed: of their starts.
        params: which weights, see :class:`~torch_iam.Neighborhood`; m and the norm are theirs.
        batch_size: cut larger batches into pieces of this many examples, to bound memory.
        split: a batch to ``(inputs, labels)``, where that is not its first two elements.
        output: which tensor of the model's answer counts, where it is not found by itself.
        progress: called with the products so far and the relative residual, of F and then of H - F.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> batches = [(torch.randn(8, 2), torch.zeros(8).long())]
    >>> bound = generalization_bound(nn.Linear(2, 3), batches, nn.CrossEntropyLoss(), rho=0.1,
    ...                              loss_bound=5.0, third_derivative_bound=1.0)
    >>> bound.vacuous, round(bound.third_order, 4), round(bound.epsilon_r, 4)
    (True, 0.0045, 0.0)
    """
    radius = check_rho(rho)
    _admit(loss_bound, third_derivative_bound, xi, epsilon_r)
    params = list(params) if isinstance(params, Iterator) else params
    residual = ResidualOperator(
        model, batches, criterion, params=params, batch_size=batch_size, split=split, output=output
    )
    fisher = FisherOperator(
        model,
        [part.visit.inputs for part in residual.parts + residual.blank],
        params=params,
        output=output,
        inputs_of=lambda x: x,
    )
    top = top_eigenpairs(fisher, tolerance=tolerance, seed=seed, progress=progress)
    largest, settled = float(top.values[0]), top.converged
    if epsilon_r is None:
        apart = _hessian_without(fisher, residual, params, seed)
        rest = top_eigenpairs(apart, which="magnitude", tolerance=tolerance, seed=seed, progress=progress)
        epsilon_r, settled = float(rest.values[0].abs()), settled and rest.converged
    m, n = residual.shape[0], residual.counted()
    norm = float(total_norm([weight.detach() for weight in residual.ball.weights]))
    inside = m * math.log1p((norm / radius) ** 2) + 2 * math.log(1 / xi) + 4 * math.log(n + m) + constant
    return GeneralizationBound(
        loss=residual.loss(),
        curvature=radius**2 / 2 * (largest + epsilon_r),
        third_order=third_derivative_bound * m**1.5 * radius**3 / 6,
        complexity=loss_bound / (2 * math.sqrt(n)) * math.sqrt(max(inside, 0.0)),
        loss_bound=loss_bound,
        lambda_max=largest,
        epsilon_r=epsilon_r,
        weights=m,
        weight_norm=norm,
        examples=n,
        rho=radius,
        xi=xi,
        converged=settled,
    )


def _hessian_without(
    fisher: FisherOperator, residual: ResidualOperator, params: Params, seed: int
) -> Operator:
    """H - F: the residual's own operator where it is that, which a random vector tells."""
    hessian = HessianOperator(
        residual.model,
        [(part.visit.inputs, part.targets) for part in residual.parts],
        residual.criterion,
        params=params,
        output=residual.output,
        split=lambda pair: pair,
    )
    hessian.reduction = residual.reduction  # found on whole batches
    generator = generator_of(hessian, seed)
    v = torch.randn(hessian.shape[0], generator=generator, dtype=hessian.dtype, device=hessian.device)
    of_h, of_f = hessian @ v, fisher @ v
    away = torch.linalg.vector_norm(of_h - of_f - residual @ v)
    scale = torch.linalg.vector_norm(of_h) + torch.linalg.vector_norm(of_f)
    slack = math.sqrt(resolution(residual.ball.weights))
    return residual if bool(away <= slack * scale) else hessian - fisher


def _admit(loss_bound: float, third: float, xi: float, epsilon_r: float | None) -> None:
    if not (math.isfinite(loss_bound) and loss_bound > 0):
        raise ValueError(
            f"loss_bound must be a finite number above 0, found {loss_bound!r}: the theorem holds for a loss that "
            "stays below it. The cross-entropy has no bound of its own; say where losses are clipped."
        )
    if not (math.isfinite(third) and third >= 0):
        raise ValueError(f"third_derivative_bound must be 0 or more, found {third!r}.")
    if not 0 < xi < 1:
        raise ValueError(f"xi must be between 0 and 1, found {xi!r}: the bound fails with this probability.")
    if epsilon_r is not None and not (math.isfinite(epsilon_r) and epsilon_r >= 0):
        raise ValueError(f"epsilon_r must be 0 or more, or None to measure it, found {epsilon_r!r}.")
