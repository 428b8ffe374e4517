"""Kendall's tau against SciPy, and what its interval covers."""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

import torch_iam as iam


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=40))
def test_tau_with_ties(points: list[tuple[int, int]]) -> None:
    x, y = zip(*points, strict=True)
    found = iam.rank_correlation([float(a) for a in x], [float(b) for b in y], resamples=5).tau
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(kendalltau(x, y).statistic, abs=1e-12)


def test_groups_separate_what_lies_between_from_what_lies_within() -> None:
    generator = torch.Generator().manual_seed(0)
    width = torch.arange(4).repeat_interleave(15)
    measure = width + 0.1 * torch.randn(60, generator=generator)
    gap = width + 0.1 * torch.randn(60, generator=generator)
    names = ["narrow", "small", "medium", "wide"]
    found = iam.rank_correlation(measure, gap, [names[i] for i in width])
    assert found.within is not None
    assert found.tau > 0.7
    assert abs(found.within.tau) < 0.25
    assert found.within.low < 0 < found.within.high
    assert list(found.groups) == names
    for i, name in enumerate(names):
        rows = width == i
        assert found.groups[name].tau == pytest.approx(kendalltau(measure[rows], gap[rows]).statistic)
    inside = [
        (a - b) * (c - d) > 0
        for i in range(4)
        for a, c in _rows(measure, gap, width == i)
        for b, d in _rows(measure, gap, width == i)
        if a != b
    ]
    assert found.within.tau == pytest.approx(2 * sum(inside) / len(inside) - 1)
    assert "within 4 groups" in str(found)


def _rows(x: torch.Tensor, y: torch.Tensor, rows: torch.Tensor) -> list[tuple[float, float]]:
    return list(zip(x[rows].tolist(), y[rows].tolist(), strict=True))


def test_the_interval_covers_the_truth() -> None:
    generator = torch.Generator().manual_seed(1)
    truth = 2 / math.pi * math.asin(0.6)  # tau of a Gaussian pair of correlation 0.6
    inside = 0
    for _ in range(100):
        x, e = torch.randn(2, 60, generator=generator)
        found = iam.rank_correlation(x, 0.6 * x + 0.8 * e, resamples=300)
        inside += found.low <= truth <= found.high
    assert 85 <= inside <= 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [1.0]), "two at least"),
        (([1.0, 2.0], [1.0]), "2 and 1 numbers"),
        (([1.0, math.nan], [1.0, 2.0]), "measure holds NaN or infinity at \\[1\\]"),
        (([1.0, 2.0], [1.0, 2.0], ["a"]), "1 labels for 2 models"),
    ],
)
def test_errors(arguments: tuple[list[float], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        iam.rank_correlation(*arguments)  # type: ignore[arg-type]


def test_whatever_float_takes_is_a_number() -> None:
    measured = [iam.spectrum.Eigenvalue(value, 0.0, 1, True, {}) for value in (1.0, 3.0, 2.0)]
    gap = [Fraction(1, 2), torch.tensor(0.7), 0.6]
    assert iam.rank_correlation(measured, gap, resamples=5).tau == 1


def test_what_has_a_number_in_it_is_told_to_give_it() -> None:
    found = [SimpleNamespace(value=float(number)) for number in range(3)]
    with pytest.raises(
        TypeError, match="measure holds a SimpleNamespace, which is no number: pass its value"
    ):
        iam.rank_correlation(found, [1.0, 2.0, 3.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="gap is a tensor or a list of numbers, found a NoneType in it"):
        iam.rank_correlation([1.0, 2.0, 3.0], [1.0, None, 3.0])  # type: ignore[list-item]
