"""What a symmetric matrix is here: something that multiplies vectors, too large to be written down."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torch_iam.guards import no_autocast


class Operator(ABC):
    """A symmetric matrix known by its products.

    SciPy takes it through ``LinearOperator(op.shape, op.numpy_matvec, matmat=op.numpy_matvec, dtype=...)``.

    Attributes:
        shape: ``(m, m)``.
        dtype: of the vectors.
        device: of the vectors.
    """

    shape: tuple[int, int]
    dtype: torch.dtype
    device: torch.device

    def matvec(self, vectors: Tensor) -> Tensor:
        """The product with one vector ``[m]`` or with a block of them ``[m, k]``, in the same shape."""
        if not isinstance(vectors, Tensor):
            raise TypeError(
                f"The operator multiplies tensors, found {type(vectors).__name__}; numpy_matvec takes arrays."
            )
        if vectors.ndim not in (1, 2) or vectors.shape[0] != self.shape[1]:
            raise ValueError(
                f"The operator is {self.shape[0]} x {self.shape[1]} and multiplies vectors "
                f"[{self.shape[1]}] or blocks [{self.shape[1]}, k]; found {list(vectors.shape)}."
            )
        vectors = vectors.detach().to(self.device, self.dtype)
        if not bool(torch.isfinite(vectors).all()):
            raise ValueError("The vector to multiply holds NaN or infinity.")
        block = vectors if vectors.ndim == 2 else vectors.unsqueeze(1)
        if not block.shape[1]:
            return torch.zeros_like(vectors)
        return self._multiply(block).view_as(vectors)

    def __matmul__(self, vectors: Tensor) -> Tensor:
        return self.matvec(vectors)

    def __sub__(self, other: Operator) -> Operator:
        return Difference(self, other)

    def numpy_matvec(self, vectors: Any) -> Any:
        """The same product for NumPy arrays, ``[m]`` or ``[m, k]``."""
        # A copy has no negative strides, which a reversed view has and no tensor.
        plain = vectors.copy() if hasattr(vectors, "copy") else vectors
        found = self.matvec(torch.as_tensor(plain, dtype=self.dtype, device=self.device))
        return found.cpu().numpy()

    def quadratics(self, draw: Callable[[], Tensor]) -> Tensor:
        r"""Parts :math:`v_b^\top A_b v_b` of a quadratic form, with a vector of its own for each.

        A matrix that is a sum over batches draws anew for each of them, ``[batches]``: for the price of one
        product as many independent probes of the trace as there are batches.
        """
        vector = draw()
        return (vector * self.matvec(vector)).sum().reshape(1)

    @abstractmethod
    def _multiply(self, block: Tensor) -> Tensor:
        """The product with a block ``[m, k]``."""


class MatrixOperator(Operator):
    """A symmetric matrix that does fit, ``[m, m]``.

    >>> MatrixOperator(torch.diag(torch.tensor([1.0, 2.0]))) @ torch.ones(2)
    tensor([1., 2.])
    """

    def __init__(self, matrix: Tensor) -> None:
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.is_floating_point():
            raise ValueError(
                f"A matrix operator is a square matrix of real numbers, found {list(matrix.shape)}, {matrix.dtype}."
            )
        difference = float((matrix - matrix.T).abs().max()) if matrix.numel() else 0.0
        if not difference <= 1e-3 * float(matrix.abs().max() if matrix.numel() else 1.0):
            raise ValueError(
                f"The matrix is not symmetric (entries differ by up to {difference:.3g}) or not finite; eigenvalues "
                "here are those of symmetric matrices. Pass (A + A.T) / 2 if that is what you mean."
            )
        self.matrix = matrix.detach()
        self.shape = (len(matrix), len(matrix))
        self.dtype, self.device = matrix.dtype, matrix.device

    def _multiply(self, block: Tensor) -> Tensor:
        with no_autocast(self.device):
            return self.matrix @ block


class Difference(Operator):
    """One operator minus another, each multiplied once."""

    def __init__(self, left: Operator, right: Operator) -> None:
        if left.shape != right.shape or left.device != right.device:
            raise ValueError(
                f"Operators of shapes {left.shape} on {left.device} and {right.shape} on {right.device} have no "
                "difference; build both over the same weights (params=)."
            )
        self.left, self.right = left, right
        self.shape, self.device = left.shape, left.device
        self.dtype = torch.promote_types(left.dtype, right.dtype)

    def _multiply(self, block: Tensor) -> Tensor:
        return self.left.matvec(block).to(self.dtype) - self.right.matvec(block).to(self.dtype)


def as_operator(matrix: Operator | Tensor) -> Operator:
    """A dense symmetric matrix as an operator; an operator as it is."""
    if not isinstance(matrix, Operator | Tensor):
        raise TypeError(
            "Take an operator, such as FisherOperator(model, inputs), or a symmetric matrix as a tensor; found "
            f"{type(matrix).__name__}."
        )
    return MatrixOperator(matrix) if isinstance(matrix, Tensor) else matrix


@contextmanager
def own_precision(operator: Operator) -> Iterator[Operator]:
    """Autocast off, but inside the operator's products, which keep the caller's.

    A network may well run in bfloat16; vectors made orthogonal in it are not orthogonal.
    """
    kind = operator.device.type
    if not torch.is_autocast_enabled(kind):
        yield operator
        return
    inner = _Autocast(operator, torch.get_autocast_dtype(kind))
    with torch.autocast(kind, enabled=False):
        yield inner


class _Autocast(Operator):
    """Products under autocast, whatever holds around them."""

    def __init__(self, inner: Operator, precision: torch.dtype) -> None:
        self.inner, self.precision = inner, precision
        self.shape, self.dtype, self.device = inner.shape, inner.dtype, inner.device

    def quadratics(self, draw: Callable[[], Tensor]) -> Tensor:
        def outside() -> Tensor:
            with no_autocast(self.device):
                return draw()

        with torch.autocast(self.device.type, dtype=self.precision):
            return self.inner.quadratics(outside)

    def _multiply(self, block: Tensor) -> Tensor:
        with torch.autocast(self.device.type, dtype=self.precision):
            return self.inner.matvec(block)
