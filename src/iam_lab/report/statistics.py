"""Means over seeds, their standard error, and rank correlation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from iam_lab.lazy import require

MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Mean:
    """A mean over independent runs.

    Attributes:
        value: the mean.
        stderr: the sample standard deviation over the root of n; None for a single run, which has no spread.
        n: the number of runs.
    """

    value: float
    stderr: float | None
    n: int

    def __str__(self) -> str:
        """With two decimals, as tables of errors have them.

        >>> print(mean([3.0, 4.0]), "|", mean([3.0]))
        3.50 ± 0.50 | 3.00
        """
        return self.text(2)

    def text(self, decimals: int) -> str:
        """With that many decimals; a standard error that would round to zero is given as a bound."""
        shown = f"{self.value:.{decimals}f}"
        if self.stderr is None:
            return shown
        least = 10.0**-decimals
        if 0 < self.stderr < least / 2:
            return f"{shown} ± <{least:.{decimals}f}"
        return f"{shown} ± {self.stderr:.{decimals}f}"


def mean(values: Sequence[float]) -> Mean:
    """Mean and standard error of finite numbers.

    >>> mean([1.0, 2.0, 3.0]).value
    2.0
    >>> mean([])
    Traceback (most recent call last):
        ...
    ValueError: There is no mean of no runs.
    """
    if not values:
        raise ValueError("There is no mean of no runs.")
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"Only finite numbers have a mean, found {list(values)}.")
    n = len(values)
    centre = math.fsum(values) / n
    if n == 1:
        return Mean(centre, None, 1)
    variance = math.fsum((value - centre) ** 2 for value in values) / (n - 1)
    return Mean(centre, math.sqrt(variance / n), n)


def mean_known(values: Iterable[float | None]) -> Mean | None:
    """Of those numbers that are there; None where none is.

    >>> print(mean_known([3.0, None, 4.0]), mean_known([None]))
    3.50 ± 0.50 None
    """
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def unsigned(value: float, decimals: int) -> str:
    """A number that may be negative, with a minus that a reader sees.

    >>> print(unsigned(-0.0439, 4))
    −0.0439
    """
    return f"{value:.{decimals}f}".replace("-", MINUS)


def signed(value: float, decimals: int, stderr: float | None = None) -> str:
    """A difference, with its sign and, where known, its standard error.

    >>> print(signed(-0.123, 2), signed(0.4, 2, 0.1))
    −0.12 +0.40 ± 0.10
    """
    spread = "" if stderr is None else f" ± {stderr:.{decimals}f}"
    return f"{MINUS if value < 0 else '+'}{abs(value):.{decimals}f}{spread}"


def combined(ours: float | None, theirs: float | None) -> float | None:
    """Standard error of a difference of two independent means; None unless both are known.

    >>> combined(0.3, 0.4)
    0.5
    """
    return None if ours is None or theirs is None else math.hypot(ours, theirs)


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b; None where it is undefined: fewer than two pairs, or one side all ties.

    >>> round(kendall_tau([1, 2, 3, 4], [1, 2, 4, 3]), 3)
    0.667
    """
    if len(first) < 2:
        return None
    stats = require("scipy.stats", extra="lab", purpose="Kendall's tau")
    tau = float(stats.kendalltau(first, second).statistic)
    return tau if math.isfinite(tau) else None
