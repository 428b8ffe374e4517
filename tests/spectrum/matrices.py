"""Symmetric matrices whose eigenvalues are known."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_iam.spectrum.operator import Operator


def rotated(eigenvalues: Tensor, seed: int = 0) -> Tensor:
    """A symmetric matrix with these eigenvalues and random eigenvectors."""
    generator = torch.Generator().manual_seed(seed)
    m = len(eigenvalues)
    basis = torch.linalg.qr(torch.randn(m, m, generator=generator, dtype=torch.float64))[0]
    matrix = basis @ torch.diag(eigenvalues.double()) @ basis.T
    return (matrix + matrix.T) / 2


class Batches(Operator):
    """The mean of matrices, each with probes of its own, as an operator over as many batches has them."""

    def __init__(self, matrices: Tensor) -> None:
        self.matrices = matrices / len(matrices)
        self.shape = (matrices.shape[1], matrices.shape[1])
        self.dtype, self.device = matrices.dtype, matrices.device

    def quadratics(self, draw: Callable[[], Tensor]) -> Tensor:
        vectors = torch.stack([draw() for _ in self.matrices])
        return torch.einsum("bi,bij,bj->b", vectors, self.matrices, vectors)

    def _multiply(self, block: Tensor) -> Tensor:
        return self.matrices.sum(0) @ block


def alike(eigenvalues: Tensor, count: int) -> Batches:
    """Matrices with a common vector to the largest eigenvalue, and other ones to the rest."""
    m = len(eigenvalues)
    found = []
    for seed in range(count):
        basis = torch.randn(m, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        basis[:, 0] = 1.0
        basis = torch.linalg.qr(basis)[0]
        found.append(basis @ torch.diag(eigenvalues.double()) @ basis.T)
    return Batches(torch.stack(found))
