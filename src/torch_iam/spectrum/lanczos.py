"""The largest eigenvalues of a symmetric operator and their vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import SupportsIndex

import torch
from torch import Tensor

from torch_iam.options import count_of
from torch_iam.spectrum.krylov import Progress, breakdown, generator_of, random_unit, step
from torch_iam.spectrum.operator import Operator, as_operator, own_precision

WHICH = ("algebraic", "magnitude")
LEAST = 4
"""Products beyond k before any search may stop: one small residual alone may belong to another eigenvector."""
ROUNDING = 8
"""A residual of so many roundings of the operator's scale is as good as 0."""
STRAY = 0.25
"""Length of the random direction that is added to a given start of length 1."""


@dataclass(frozen=True)
class Eigenpairs:
    """Eigenvalues with their vectors, the wanted ones first.

    Attributes:
        values: ``[k]``, float64, on the CPU.
        vectors: ``[m, k]``, orthonormal, on the operator's device.
        residuals: ``||A v - lambda v||`` of each, ``[k]``: some eigenvalue is as near. From products with these
            very vectors where they are so small that rounding counts.
        iterations: products with the operator.
        converged: whether every residual met the tolerance, or is what a product's rounding leaves of 0.
    """

    values: Tensor
    vectors: Tensor = field(repr=False)
    residuals: Tensor
    iterations: int
    converged: bool


def top_eigenpairs(
    operator: Operator | Tensor,
    k: SupportsIndex = 1,
    *,
    which: str = "algebraic",
    tolerance: float = 1e-4,
    max_matvecs: int | None = None,
    basis: int | None = None,
    start: Tensor | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Eigenpairs:
    r"""The k largest eigenvalues and their vectors, by Lanczos with thick restarts.

    Every new vector is made orthogonal to all kept ones, and the search stops as soon as

    .. math:: \|A v_i - \lambda_i v_i\| \le \mathrm{tolerance} \cdot |\lambda_i|, \qquad i = 1..k,

    so that some eigenvalue is no farther away than the residual (where the others are far, than its square), but
    not before k + 4 products. Residuals close to rounding, where the recursion promises more than the vectors
    keep, are measured by a product with each vector at the end. The basis takes ``basis`` vectors of memory;
    when it is full, the best of it is kept and the search goes on. An invariant subspace (a matrix of low
    rank) is left through a new random direction. As with any search from a single start, of equal or nearly
    equal eigenvalues some may be missed when the search converges before it tells them apart, the largest not
    excepted.

    Args:
        operator: a symmetric operator, or a symmetric matrix ``[m, m]``.
        k: how many.
        which: ``"algebraic"`` for the largest, ``"magnitude"`` for the largest in absolute value.
        tolerance: relative residual.
        max_matvecs: products to spend at most, by default 300 or 30 k.
        basis: vectors kept, by default 20 or 2 k + 2.
        start: where to begin ``[m]``, by default at random. It saves products where it is close to the wanted
            vectors: found on the same model a step ago, or by an ascent from a random start, such as
            ``Estimate.direction``. A random direction of a quarter of its length is added, so that a start that
            is an eigenvector of something else has some of every other vector too; where that little does
            not show by the time the residual is met, the search ends at the wrong vector. Two searches from
            random starts are the check.
        seed: of the random start, or of what is added to the given one.
        progress: called with the products so far and the largest relative residual.

    >>> found = top_eigenpairs(torch.diag(torch.arange(50.0, dtype=torch.float64)), k=2, tolerance=1e-10)
    >>> found.values, found.converged
    (tensor([49.0000, 48.0000], dtype=torch.float64), True)
    """
    with own_precision(as_operator(operator)) as matrix:
        kept = None if basis is None else count_of("basis", basis)
        search = _Search(matrix, count_of("k", k), which, tolerance, kept, seed)
        limit = max(300, 30 * search.k) if max_matvecs is None else count_of("max_matvecs", max_matvecs)
        search.begin(start)
        while not search.advance() and search.matvecs < limit:
            if progress is not None:
                progress(search.matvecs, search.error())
        if progress is not None:
            progress(search.matvecs, search.error())
        return search.result(limit)


class _Search:
    """A basis V with T = V' A V that grows by a vector a product, and the Ritz pairs in it."""

    def __init__(
        self, operator: Operator, k: int, which: str, tolerance: float, basis: int | None, seed: int
    ) -> None:
        m = operator.shape[0]
        if k > m:
            raise ValueError(f"k must be between 1 and the dimension {m} of the operator, found {k}.")
        if which not in WHICH:
            raise ValueError(f"which must be one of {WHICH}, found {which!r}.")
        if not tolerance > 0:
            raise ValueError(f"tolerance must be above 0, found {tolerance!r}.")
        if basis is not None and basis < k + 2:
            raise ValueError(f"basis must be k + 2 = {k + 2} or more, found {basis}.")
        self.operator, self.k, self.which, self.tolerance = operator, k, which, tolerance
        self.rows = min(m, max(20, 2 * k + 2) if basis is None else basis)
        self.vectors = torch.zeros(self.rows + 1, m, dtype=operator.dtype, device=operator.device)
        self.small = torch.zeros(self.rows, self.rows, dtype=torch.float64)
        self.generator = generator_of(operator, seed)
        self.size, self.matvecs, self.scale = 0, 0, 0.0
        self.remainder = 0.0
        self.before_break: Tensor | None = None
        self.least, self.over = min(m, k + LEAST), False

    def begin(self, start: Tensor | None) -> None:
        if start is None:
            self._inject()
            return
        vector = start.to(self.operator.device, self.operator.dtype).reshape(-1)
        length = torch.linalg.vector_norm(vector)
        if len(vector) != self.operator.shape[0] or not bool(torch.isfinite(length) & (length > 0)):
            raise ValueError(
                f"start must be a finite vector of {self.operator.shape[0]} numbers that are not all zero, found "
                f"{list(start.shape)} of norm {float(length):g}."
            )
        stray = torch.randn(len(vector), generator=self.generator, dtype=vector.dtype, device=vector.device)
        mixed = vector / length + STRAY * stray / torch.linalg.vector_norm(stray)
        self.vectors[0] = mixed / torch.linalg.vector_norm(mixed)

    def advance(self) -> bool:
        """One more product; whether the search is over."""
        self.over = self._grow()
        return self.over

    def _grow(self) -> bool:
        if self.size == self.rows and self.rows < self.operator.shape[0]:
            self._restart()
        self.size += 1
        j = self.size
        coefficients, rest, self.remainder = step(self.operator, self.vectors, j)
        self.small[j - 1, :j] = self.small[:j, j - 1] = coefficients
        self.matvecs += 1
        self._rotate()
        self.scale = max(self.scale, float(self.ritz.abs().max()), self.remainder)
        if j == self.operator.shape[0]:
            self.remainder = 0.0
            return True
        if breakdown(self.remainder, self.scale, self.operator) or (self._met() and self._nearly_closed()):
            return self._leave_subspace()
        self.vectors[j] = rest / self.remainder
        return self.matvecs >= self.least and self._met() and self._settled()

    def error(self) -> float:
        """The largest residual of a wanted pair, relative."""
        if self.size < self.k:
            return float("inf")
        left = self._beyond_rounding(self._residuals()[: self.k])
        return float((left / self._floored(self.ritz[: self.k])).max())

    def result(self, limit: int) -> Eigenpairs:
        """What was found; ``limit`` is what may be spent on measuring residuals."""
        found = min(self.k, self.size)
        values, claimed = self.ritz[:found].clone(), self._residuals()[:found].clone()
        vectors = self.vectors[: self.size].T @ self.rotation[:, :found].to(self.vectors)
        epsilon = torch.finfo(self.operator.dtype).eps
        # The recursion's residuals go on to fall where those of the vectors, rounded, do not.
        doubtful = claimed < epsilon ** (2 / 3) * self.scale
        residuals = claimed
        if bool(doubtful.any()) and self.matvecs + int(doubtful.sum()) <= limit:
            chosen = doubtful.nonzero().flatten().tolist()
            image = self.operator.matvec(vectors[:, chosen])
            away = image - vectors[:, chosen] * values[chosen].to(image)
            residuals[doubtful] = torch.linalg.vector_norm(away, dim=0, dtype=torch.float64).cpu()
            self.matvecs += len(chosen)
        elif bool(doubtful.any()):
            residuals = claimed.clamp(min=epsilon ** (2 / 3) * self.scale)
        rounding = ROUNDING * epsilon * self.scale
        left = residuals.where(residuals > rounding, 0.0) / self._floored(values)
        met = found == self.k and float(left.max()) <= self.tolerance
        return Eigenpairs(values, vectors, residuals, self.matvecs, converged=self.over and met)

    def _rotate(self) -> None:
        """Ritz values and vectors, the wanted ones first."""
        values, rotation = torch.linalg.eigh(self.small[: self.size, : self.size])
        order = torch.argsort(values.abs() if self.which == "magnitude" else values, descending=True)
        self.ritz, self.rotation = values[order], rotation[:, order]

    def _residuals(self) -> Tensor:
        last: Tensor = self.rotation[-1].abs()
        return self.remainder * last

    def _beyond_rounding(self, residuals: Tensor) -> Tensor:
        """Residuals, with 0 for what a product's own rounding could be: no more products make that smaller."""
        rounding = torch.finfo(self.operator.dtype).eps * self.scale
        return residuals.where(residuals > rounding, 0.0)

    def _floored(self, values: Tensor) -> Tensor:
        """What a residual is compared with; an eigenvalue of 0 has no relative one."""
        floor = torch.finfo(self.operator.dtype).eps ** (2 / 3) * self.scale
        return values.abs().clamp(min=max(floor, torch.finfo(torch.float64).tiny))

    def _met(self) -> bool:
        return self.error() <= self.tolerance

    def _settled(self) -> bool:
        """Nothing larger hides in the space that was entered at the last breakdown."""
        if self.before_break is None:
            return True
        active = self.rotation[-1].abs() > 1e-10
        first = int(torch.nonzero(active)[0]) if bool(active.any()) else 0
        small = self._residuals()[first] <= self.tolerance * max(self.scale, 1e-300)
        return bool(small) and not self._gained()

    def _nearly_closed(self) -> bool:
        """Whether the basis is invariant but for little: equal eigenvalues may hide behind found ones."""
        return bool(self.remainder <= torch.finfo(self.operator.dtype).eps ** 0.5 * self.scale)

    def _gained(self) -> bool:
        """Whether the wanted values changed since the last breakdown."""
        before, now = self.before_break, self.ritz[: self.k]
        if before is None or len(before) < len(now):
            return True
        return bool(((now - before).abs() > self.tolerance * self._floored(now)).any())

    def _leave_subspace(self) -> bool:
        if self.size >= self.k and not self._gained():
            return True
        self.before_break = self.ritz[: self.k].clone()
        if self.size == self.rows:
            self._restart(inject=True)
        else:
            self._inject()
        return False

    def _inject(self) -> None:
        self.vectors[self.size] = random_unit(self.operator, self.vectors[: self.size], self.generator)

    def _restart(self, *, inject: bool = False) -> None:
        """Keep the best Ritz vectors and the direction to go on in."""
        kept = min(self.k + max(1, (self.rows - self.k) // 2), self.rows - 1)
        onward = self.vectors[self.size].clone()
        chosen = self.rotation[:, :kept].to(self.vectors)
        self.vectors[:kept] = chosen.T @ self.vectors[: self.size]
        self.small.zero_()
        self.small[:kept, :kept] = torch.diag(self.ritz[:kept])
        self.size = kept
        if inject:
            self._inject()
        else:
            self.vectors[kept] = onward
