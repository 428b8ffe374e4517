"""The trace of an operator from random probes, with a standard error to stop by."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_iam.options import count_of
from torch_iam.spectrum.krylov import Progress, generator_of
from torch_iam.spectrum.operator import Operator, as_operator, own_precision

METHODS = ("hutch++", "hutchinson")
FREEDOM = 30
"""Differences of probes that a standard error rests on at least."""
UNSKETCHED = 100
"""As many where there is no sketch and the search may stop: a few large eigenvalues skew the probes, and a draw
that misses them has a small mean and a small spread at once."""


@dataclass(frozen=True)
class TraceEstimate:
    """A measured trace.

    Attributes:
        value: the estimate. A search that stops by its own spread is biased, towards 0 where few eigenvalues
            are large: where it was measured, by less than 0.4 of the standard error on average.
        stderr: its standard error over the random probes; 0 where it is exact, infinite where there are too
            few of them to tell.
        matvecs: passes over the data, each a product or a quadratic form of the operator.
        converged: whether the standard error met the tolerance.
    """

    value: float
    stderr: float
    matvecs: int
    converged: bool

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        """One line, as ``print`` shows it."""
        state = "" if self.converged else ", not converged"
        return f"{self.value:.4g} ± {self.stderr:.2g}   {self.matvecs} products{state}"


def trace(
    operator: Operator | Tensor,
    method: str = "hutch++",
    *,
    tolerance: float = 0.01,
    max_matvecs: int = 300,
    seed: int = 0,
    progress: Progress | None = None,
) -> TraceEstimate:
    r"""The trace of a symmetric operator by Hutch++ or Hutchinson, to a standard error.

    .. math:: \mathrm{Tr}(A) = \mathrm{Tr}(Q^\top A Q)
        + \mathbb{E}\, g^\top (1 - Q Q^\top)\, A\, (1 - Q Q^\top)\, g

    with random signs g, and Q spanning A times random vectors: what is large is summed exactly, the rest
    sampled. Hutchinson has no Q. Q starts at eight vectors, at once where a probe is a few numbers only, for
    without it a standard error takes many of them to be trusted. From there the spread of the probes decides:
    Q doubles as long as that narrows it and sampling would cost more. An operator over several batches draws
    g anew for each of them, so smaller batches give more independent probes for the same price.

    Args:
        operator: a symmetric operator, or a symmetric matrix ``[m, m]``.
        method: ``"hutch++"`` or ``"hutchinson"``.
        tolerance: the standard error to stop at, relative to the trace.
        max_matvecs: products and quadratic forms to spend at most.
        seed: of the probes.
        progress: called with the products so far and the relative standard error.

    >>> found = trace(torch.diag(torch.arange(100.0)), "hutchinson")  # random signs see a diagonal exactly
    >>> found.value, found.stderr, found.converged
    (4950.0, 0.0, True)
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, found {method!r}.")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be above 0, found {tolerance!r}.")
    limit = count_of("max_matvecs", max_matvecs, least=2)
    with own_precision(as_operator(operator)) as matrix:
        return _estimate(matrix, method == "hutch++", tolerance, limit, seed, progress)


def _estimate(
    matrix: Operator, growing: bool, tolerance: float, max_matvecs: int, seed: int, progress: Progress | None
) -> TraceEstimate:
    generator = generator_of(matrix, seed)
    sketch = _Sketch(matrix, generator)
    probes = _Probes(matrix, generator, sketch)
    last = math.inf
    while True:
        probes.add()
        spent = sketch.matvecs + probes.drawn
        value = sketch.trace + probes.mean()
        error, target = probes.stderr(), tolerance * abs(value)
        if progress is not None:
            progress(spent, error / abs(value) if value else math.inf)
        if spent >= max_matvecs or (error <= target and probes.enough()):
            return TraceEstimate(value, error, spent, error <= target)
        price = 2 * sketch.next_size()
        room = spent + price + probes.needed(FREEDOM) <= max_matvecs
        if not growing or not room or probes.left(target) <= price:
            continue
        apart = error * math.sqrt(probes.count)  # of single probes
        growing = (
            math.isinf(error) or apart < last / 1.4
        )  # else the last growth has not paid, and no more will
        if not growing:
            continue
        last = apart
        sketch.extend(sketch.next_size())
        probes.forget()
        if sketch.complete:
            spent = sketch.matvecs + probes.drawn
            if progress is not None:
                progress(spent, 0.0)
            return TraceEstimate(sketch.trace, 0.0, spent, True)


class _Sketch:
    """The subspace in which the trace is summed exactly."""

    def __init__(self, operator: Operator, generator: torch.Generator) -> None:
        self.operator, self.generator = operator, generator
        self.basis = torch.zeros(operator.shape[0], 0, dtype=operator.dtype, device=operator.device)
        self.trace, self.matvecs = 0.0, 0

    @property
    def empty(self) -> bool:
        return not self.basis.shape[1]

    @property
    def complete(self) -> bool:
        return self.basis.shape[1] == self.basis.shape[0]

    def next_size(self) -> int:
        """How many vectors it would grow by: eight, then to twice as many."""
        size = self.basis.shape[1]
        return min(max(8, size), self.basis.shape[0] - size)

    def extend(self, count: int) -> None:
        old, rows = self.basis.shape[1], self.basis.shape[0]
        if old + count < rows:
            drawn = torch.randn(
                rows, count, generator=self.generator, dtype=self.basis.dtype, device=self.basis.device
            )
            image = self.operator.matvec(self.out_of(drawn))
            self.matvecs += count
        else:  # all there is: any basis of the complement will do, and needs no product
            image = torch.randn(
                rows, count, generator=self.generator, dtype=self.basis.dtype, device=self.basis.device
            )
        self.basis = torch.linalg.qr(torch.cat([self.basis, image], 1))[0]
        new = self.basis[:, old:]
        self.trace += float((new * self.operator.matvec(new)).sum(dtype=torch.float64))
        self.matvecs += count

    def out_of(self, vectors: Tensor) -> Tensor:
        """What of the vectors lies outside the subspace."""
        if self.empty:
            return vectors
        return vectors - self.basis @ (self.basis.T @ vectors)


class _Probes:
    """Quadratic forms with random signs, whose mean is the trace outside the sketch."""

    def __init__(self, operator: Operator, generator: torch.Generator, sketch: _Sketch) -> None:
        self.operator, self.generator, self.sketch = operator, generator, sketch
        self.drawn = 0
        self.forget()

    def forget(self) -> None:
        """Start over, with another sketch to stay out of."""
        self.count = 0
        self.average = self.spread = torch.zeros((), dtype=torch.float64)  # [parts] after the first probe

    def add(self) -> None:
        """One more probe of every part: Welford's update of the mean and the sum of squared differences."""
        values = self.operator.quadratics(self._draw).double().cpu()
        self.drawn += 1
        self.count += 1
        ahead = values - self.average
        self.average = self.average + ahead / self.count
        self.spread = self.spread + ahead * (values - self.average)

    def mean(self) -> float:
        return float(self.average.sum())

    def stderr(self) -> float:
        """Infinite as long as it would rest on too few differences."""
        if self.count < self.needed(FREEDOM):
            return math.inf
        return math.sqrt(float(self.spread.sum()) / (self.count - 1) / self.count)

    def needed(self, differences: int) -> int:
        """Probes that so many differences take, those of all parts together."""
        return 1 + math.ceil(differences / self.average.numel())

    def enough(self) -> bool:
        """Whether the standard error may be trusted to stop by."""
        return self.count >= self.needed(FREEDOM if not self.sketch.empty else UNSKETCHED)

    def left(self, target: float) -> float:
        """How many more it would take as things are; what is not known yet counts for nothing."""
        for_trust = self.needed(UNSKETCHED) - self.count if self.sketch.empty else 0
        error = self.stderr()
        for_target = self.count * ((error / max(target, 1e-300)) ** 2 - 1) if math.isfinite(error) else 0.0
        return max(for_trust, for_target)

    def _draw(self) -> Tensor:
        signs = torch.randint(
            0, 2, (self.operator.shape[0],), generator=self.generator, device=self.operator.device
        )
        return self.sketch.out_of((2 * signs - 1).to(self.operator.dtype))
