"""One step of Lanczos, orthogonal to everything before it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_iam.spectrum.operator import Operator

Progress = Callable[[int, float], None]
"""Called after each product with the number of products so far and the error that is left."""

PASSES = 5


def step(operator: Operator, basis: Tensor, size: int) -> tuple[Tensor, Tensor, float]:
    """Multiply the last of ``size`` orthonormal vectors and take out what they span.

    Args:
        operator: the matrix A.
        basis: vectors in rows, ``[rows, m]``; the first ``size`` of them count.
        size: how many there are.

    Returns:
        The coefficients of A v in the basis (``[size]``, float64 on the CPU), the remainder and its norm.
        What they span is taken out until nothing more goes away, so that even a remainder that is close to
        rounding is orthogonal to them when it is scaled to length 1.
    """
    known = basis[:size]
    rest = operator.matvec(basis[size - 1])
    coefficients = torch.zeros(size, dtype=torch.float64, device=rest.device)
    length = _norm(rest)
    for _ in range(PASSES):
        before, inside = length, known @ rest
        rest = torch.addmv(rest, known.T, inside, alpha=-1)
        coefficients += inside
        length = _norm(rest)
        if length > before / 2:
            break
    return coefficients.cpu(), rest, length


def random_unit(operator: Operator, known: Tensor, generator: torch.Generator) -> Tensor:
    """A Gaussian direction orthogonal to the rows of ``known``, of length 1."""
    found = torch.randn(operator.shape[0], generator=generator, dtype=operator.dtype, device=operator.device)
    for _ in range(2):
        found = found - known.T @ (known @ found)
        found = found / torch.linalg.vector_norm(found)
    return found


def breakdown(length: float, scale: float, operator: Operator) -> bool:
    """Whether a remainder is rounding alone, so that the basis spans an invariant subspace."""
    return bool(length <= torch.finfo(operator.dtype).eps ** 0.8 * scale)


def generator_of(operator: Operator, seed: int) -> torch.Generator:
    """A random stream of its own, on the operator's device."""
    return torch.Generator(operator.device).manual_seed(seed)


def _norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64))
