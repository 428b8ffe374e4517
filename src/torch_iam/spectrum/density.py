"""How the eigenvalues of an operator are distributed, without computing them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from torch_iam.guards import no_autocast
from torch_iam.options import count_of
from torch_iam.spectrum.krylov import Progress, breakdown, generator_of, step
from torch_iam.spectrum.operator import Operator, as_operator, own_precision


@dataclass(frozen=True)
class SpectralDensity:
    """The eigenvalues' distribution, as a curve and as the quadrature behind it. All float64, on the CPU.

    Attributes:
        grid: eigenvalues at which the curve is given, ``[points]``.
        density: the curve, which integrates to 1, ``[points]``.
        nodes: where the quadrature has its weights, ``[nodes]``, ascending; the outermost are close to
            eigenvalues.
        weights: shares of all eigenvalues, ``[nodes]``, which sum to 1.
        bandwidth: standard deviation of the Gaussian that each node is drawn as.
        probes: random starts behind it.
        matvecs: products with the operator.
    """

    grid: Tensor = field(repr=False)
    density: Tensor = field(repr=False)
    nodes: Tensor = field(repr=False)
    weights: Tensor = field(repr=False)
    bandwidth: float
    probes: int
    matvecs: int


def spectral_density(
    operator: Operator | Tensor,
    *,
    steps: int = 40,
    probes: int = 4,
    points: int = 1000,
    bandwidth: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> SpectralDensity:
    r"""The density of the eigenvalues by stochastic Lanczos quadrature.

    .. math:: \frac{1}{m} \sum_i \delta(\lambda - \lambda_i)
        \approx \frac{1}{P} \sum_{p=1}^{P} \sum_{j=1}^{J} \tau_{pj}^2\, \mathcal{N}(\lambda; \theta_{pj}, \sigma^2)

    with the eigenvalues theta of the J x J matrices that Lanczos builds from P random starts, and tau the
    first entries of their eigenvectors. Its first 2 J - 1 moments are those of the operator, within the
    spread over starts.

    Args:
        operator: a symmetric operator, or a symmetric matrix ``[m, m]``.
        steps: J, products from each start; as many vectors are kept in memory.
        probes: P, the starts.
        points: of the curve.
        bandwidth: sigma; by default 1/100 of the range of the nodes.
        seed: of the starts.
        progress: called with the products so far and the share that is left.

    >>> found = spectral_density(torch.diag(torch.tensor([0.0, 0.0, 0.0, 1.0])), steps=10, probes=100)
    >>> round(float(found.weights[found.nodes > 0.5].sum()), 1)  # a quarter of the eigenvalues is 1
    0.2
    """
    steps, probes = count_of("steps", steps), count_of("probes", probes)
    points = count_of("points", points, least=2)
    if bandwidth is not None and not bandwidth > 0:
        raise ValueError(f"bandwidth must be above 0, found {bandwidth!r}.")
    nodes, weights, matvecs = [], [], 0
    with own_precision(as_operator(operator)) as matrix:
        generator = generator_of(matrix, seed)
        for probe in range(probes):
            start = torch.randn(
                matrix.shape[0], generator=generator, dtype=matrix.dtype, device=matrix.device
            )
            small = _tridiagonal(matrix, start / torch.linalg.vector_norm(start), min(steps, matrix.shape[0]))
            values, rotation = torch.linalg.eigh(small)
            nodes.append(values)
            weights.append(rotation[0].square() / probes)
            matvecs += len(small)
            if progress is not None:
                progress(matvecs, 1 - (probe + 1) / probes)
    with no_autocast(torch.device("cpu")):
        return _smooth(torch.cat(nodes), torch.cat(weights), points, bandwidth, probes, matvecs)


def _smooth(
    nodes: Tensor, weights: Tensor, points: int, bandwidth: float | None, probes: int, matvecs: int
) -> SpectralDensity:
    """The quadrature as a curve, each node a Gaussian."""
    found, order = torch.sort(nodes)
    shares = weights[order]
    low, high = float(found[0]), float(found[-1])
    width = bandwidth or max((high - low) / 100, 1e-6 * max(abs(low), abs(high)), 1e-12)
    grid = torch.linspace(low - 5 * width, high + 5 * width, points, dtype=torch.float64)
    bumps = torch.exp(-((grid[:, None] - found) ** 2) / (2 * width**2)) / (width * math.sqrt(2 * math.pi))
    return SpectralDensity(grid, bumps @ shares, found, shares, width, probes, matvecs)


def _tridiagonal(operator: Operator, start: Tensor, steps: int) -> Tensor:
    """The matrix of the operator in the Krylov space of ``start``, ``[J, J]``, smaller if that closes."""
    basis = torch.zeros(steps + 1, len(start), dtype=start.dtype, device=start.device)
    basis[0] = start
    small = torch.zeros(steps, steps, dtype=torch.float64)
    scale = 0.0
    for size in range(1, steps + 1):
        coefficients, rest, length = step(operator, basis, size)
        small[size - 1, :size] = small[:size, size - 1] = coefficients
        scale = max(scale, float(coefficients.abs().max()), length)
        if breakdown(length, scale, operator):
            return small[:size, :size]
        basis[size] = rest / length
    return small
