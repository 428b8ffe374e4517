"""Algorithm 1 beside what it estimates: the quadratic theory, and a long ascent from many starts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import torch_iam as iam
from iam_lab.report.statistics import Mean, mean
from iam_lab.toy.fisher import FisherSpectrum, cosine, flat
from iam_lab.toy.many_starts import projected_ascents

STEPS = 10
STARTS = 20
ASCENT_STEPS, ASCENT_STARTS = 200, 20
"""Projected gradient ascent as in the paper: 20 starts, 200 steps, the first of length rho / 8."""


@dataclass(frozen=True)
class Accuracy:
    """One network at one radius.

    Attributes:
        step: of training.
        loss: there.
        rho: the radius.
        eigenvalues: the three largest of F.
        theory: rho² / 2 times the largest.
        projected: the best of all starts of projected ascent; None where it was not run.
        estimates: S of Algorithm 1 with K = 10, one a start.
        cosines: |cos| of each of its directions with the top eigenvector.
    """

    step: int
    loss: float
    rho: float
    eigenvalues: list[float]
    theory: float
    projected: float | None
    estimates: list[float]
    cosines: list[float]

    def error(self) -> Mean:
        """Mean |estimate / theory − 1| over the starts."""
        return mean([abs(value / self.theory - 1) for value in self.estimates])

    def shortfall(self) -> Mean:
        """Mean 1 − estimate / best of projected ascent over the starts: how much of the maximum is missed."""
        if self.projected is None:
            raise ValueError("Projected ascent was not run here.")
        return mean([1 - value / self.projected for value in self.estimates])


def accuracy(
    network: nn.Module,
    points: Tensor,
    labels: Tensor,
    rho: float,
    *,
    step: int = 0,
    steps: int = STEPS,
    starts: int = STARTS,
    ascent_starts: int = ASCENT_STARTS,
    ascent_steps: int = ASCENT_STEPS,
) -> Accuracy:
    """All three quantities; ``ascent_starts = 0`` leaves the projected ascent out."""
    spectrum = FisherSpectrum.of(network, points)
    top = spectrum.eigenvectors(1)[:, 0]
    found = [
        iam.local_inconsistency(network, points, rho, steps=steps, restarts=1, seed=seed)
        for seed in range(starts)
    ]
    projected = None
    if ascent_starts:
        projected = float(projected_ascents(network, points, rho, ascent_starts, ascent_steps).max())
    with torch.no_grad():
        loss = float(nn.functional.cross_entropy(network(points), labels))
    return Accuracy(
        step=step,
        loss=loss,
        rho=rho,
        eigenvalues=spectrum.eigenvalues[:3].tolist(),
        theory=rho**2 / 2 * float(spectrum.eigenvalues[0]),
        projected=projected,
        estimates=[estimate.value for estimate in found],
        cosines=[cosine(top, flat(estimate.direction)) for estimate in found],
    )


@dataclass(frozen=True)
class Climbs:
    """S after every step of an ascent, at one radius.

    Attributes:
        rho: the radius.
        theory: rho² / 2 times lambda_max(F).
        power: Algorithm 1, ``[starts, K]``.
        projected: projected ascent, the best so far, ``[starts, steps]``.
    """

    rho: float
    theory: float
    power: list[list[float]]
    projected: list[list[float]]


def climbs(
    network: nn.Module, points: Tensor, rho: float, *, starts: int = ASCENT_STARTS, steps: int = ASCENT_STEPS
) -> Climbs:
    """Both ascents from as many starts, with as many steps."""
    theory = rho**2 / 2 * float(FisherSpectrum.of(network, points).eigenvalues[0])
    power = iam.local_inconsistency(network, points, rho, steps=steps, restarts=starts).trace
    projected = projected_ascents(network, points, rho, starts, steps)
    return Climbs(rho, theory, power.tolist(), projected.cummax(dim=1).values.tolist())
