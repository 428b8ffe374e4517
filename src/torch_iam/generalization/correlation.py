"""Whether a measure orders models as their generalisation gap does."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import SupportsFloat

import torch
from torch import Tensor


@dataclass(frozen=True)
class RankCorrelation:
    """Kendall's tau-b with a bootstrap interval.

    Attributes:
        tau: between -1 and 1; NaN where the pairs are all ties in one of the two.
        low: lower end of the interval.
        high: upper end.
        points: how many models it is over.
        within: the same over pairs inside a group only; None without groups.
        groups: the same for every group alone.
    """

    tau: float
    low: float
    high: float
    points: int
    within: RankCorrelation | None = None
    groups: dict[Hashable, RankCorrelation] = field(default_factory=dict)

    def __float__(self) -> float:
        return self.tau

    def __str__(self) -> str:
        """One line, as ``print`` shows it."""
        inside = "" if self.within is None else f"; within {len(self.groups)} groups {self.within.tau:.3f}"
        return f"tau = {self.tau:.3f} [{self.low:.3f}, {self.high:.3f}]   {self.points} points{inside}"


def rank_correlation(
    measure: Tensor | Sequence[SupportsFloat],
    gap: Tensor | Sequence[SupportsFloat],
    groups: Iterable[Hashable] | None = None,
    *,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> RankCorrelation:
    r"""Kendall's tau-b between a measure and the generalisation gap, overall and within groups.

    .. math:: \tau_b = \frac{\sum_{i<j} \mathrm{sign}(x_i - x_j)\, \mathrm{sign}(y_i - y_j)}
        {\sqrt{\sum_{i<j} [x_i \ne x_j]\; \sum_{i<j} [y_i \ne y_j]}}

    The interval is the percentile bootstrap over models, drawn inside each group where there are groups. A
    measure may order models well only because it tells groups (architectures, widths) apart; the tau within
    groups does not count such pairs.

    Args:
        measure: a number for every model, ``[n]``, or anything that ``float()`` takes.
        gap: another, ``[n]``.
        groups: a label for every model.
        resamples: of the bootstrap.
        confidence: of the interval.
        seed: of the bootstrap.

    >>> found = rank_correlation([1.0, 2.0, 3.0, 4.0], [0.1, 0.3, 0.2, 0.4])
    >>> round(found.tau, 3)
    0.667
    """
    x, y = _numbers("measure", measure), _numbers("gap", gap)
    if len(x) != len(y) or len(x) < 2:
        raise ValueError(
            f"measure and gap hold {len(x)} and {len(y)} numbers: as many of each, two at least."
        )
    if not 0 < confidence < 1 or not isinstance(resamples, int) or resamples < 1:
        raise ValueError(
            f"confidence must be between 0 and 1 and resamples 1 or more, found {confidence!r} and {resamples!r}."
        )
    if isinstance(groups, Tensor):  # equal tensors are different keys
        groups = groups.tolist()
    labels = None if groups is None else list(groups)
    if labels is not None and len(labels) != len(x):
        raise ValueError(f"groups holds {len(labels)} labels for {len(x)} models: one for each.")
    generator = torch.Generator().manual_seed(seed)
    if labels is None:
        counts = _resampled([torch.arange(len(x))], resamples, generator)
        return _tau(x, y, None, counts, confidence)
    places: dict[Hashable, list[int]] = {}
    for index, label in enumerate(labels):
        places.setdefault(label, []).append(index)
    members = [torch.tensor(rows) for rows in places.values()]
    number = torch.zeros(len(x), dtype=torch.long)
    for index, rows in enumerate(members):
        number[rows] = index
    counts = _resampled(members, resamples, generator)
    overall = _tau(x, y, None, counts, confidence)
    return RankCorrelation(
        overall.tau,
        overall.low,
        overall.high,
        overall.points,
        within=_tau(x, y, number[:, None] == number, counts, confidence),
        groups={
            name: _tau(x[rows], y[rows], None, counts[:, rows], confidence)
            for name, rows in zip(places, members, strict=True)
        },
    )


def _tau(x: Tensor, y: Tensor, counted: Tensor | None, counts: Tensor, confidence: float) -> RankCorrelation:
    """Tau-b over the pairs that count, and over resamples in which point i appears ``counts[:, i]`` times."""
    a, b = torch.sign(x[:, None] - x), torch.sign(y[:, None] - y)
    if counted is not None:
        a, b = a * counted, b * counted
    drawn = torch.cat([torch.ones(1, len(x), dtype=torch.float64), counts])

    def form(pairs: Tensor) -> Tensor:
        return ((drawn @ pairs) * drawn).sum(1)

    taus = form(a * b) / torch.sqrt(form(a.abs()) * form(b.abs()))
    tau, found = float(taus[0]), taus[1:][torch.isfinite(taus[1:])]
    if math.isnan(tau) or not len(found):
        return RankCorrelation(tau, math.nan, math.nan, len(x))
    ends = torch.quantile(found, torch.tensor([(1 - confidence) / 2, (1 + confidence) / 2]).double())
    return RankCorrelation(tau, float(ends[0]), float(ends[1]), len(x))


def _resampled(groups: Sequence[Tensor], resamples: int, generator: torch.Generator) -> Tensor:
    """How often each point appears in each resample, ``[resamples, n]``."""
    counts = torch.zeros(resamples, sum(len(rows) for rows in groups), dtype=torch.float64)
    for rows in groups:
        chosen = rows[torch.randint(len(rows), (resamples, len(rows)), generator=generator)]
        counts.scatter_add_(1, chosen, torch.ones_like(chosen, dtype=torch.float64))
    return counts


def _numbers(name: str, values: Tensor | Sequence[SupportsFloat]) -> Tensor:
    try:
        found = torch.as_tensor(values, dtype=torch.float64).detach().cpu().flatten()
    except TypeError as error:
        raise TypeError(_no_numbers(name, values)) from error
    if not bool(torch.isfinite(found).all()):
        bad = torch.nonzero(~torch.isfinite(found)).flatten().tolist()
        raise ValueError(f"{name} holds NaN or infinity at {bad[:5]}; leave these models out of both.")
    return found


def _no_numbers(name: str, values: object) -> str:
    """What of ``values`` is no number, and what is, where it holds one as an estimate does."""
    listed = list(values) if isinstance(values, Iterable) else [values]
    other = next((value for value in listed if not isinstance(value, SupportsFloat)), values)
    kind = type(other).__name__
    if hasattr(other, "value"):
        return f"{name} holds a {kind}, which is no number: pass its value, as in [found.value for found in ...]."
    return f"{name} is a tensor or a list of numbers, found a {kind} in it."
