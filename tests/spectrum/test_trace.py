"""Traces of matrices that are known."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spectrum.matrices import alike, rotated

import torch_iam as iam

FAST = settings(max_examples=30, deadline=None)


@FAST
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=40), st.sampled_from(["hutch++", "hutchinson"]))
def test_trace_of_a_diagonal_is_exact(diagonal: list[float], method: str) -> None:
    found = iam.trace(torch.diag(torch.tensor(diagonal, dtype=torch.float64)), method)
    assert found.value == pytest.approx(sum(diagonal), abs=1e-9)


UNIFORM = torch.rand(200, generator=torch.Generator().manual_seed(5))
SPECTRA = {
    "flat": UNIFORM,
    "one large": torch.cat([torch.tensor([20.0]), UNIFORM[1:]]),
    "four large": torch.cat([torch.tensor([50.0, 30.0, 20.0, 10.0]), 0.1 * UNIFORM[4:]]),
    "indefinite": torch.cat([torch.tensor([20.0, 10.0, 5.0, -5.0]), 0.3 * UNIFORM[4:] - 0.09]),
    "power": 1 / torch.arange(1, 201),
    "geometric": 0.7 ** torch.arange(200),
}


@pytest.mark.parametrize(
    ("spectrum", "batches", "tolerance", "method", "products"),
    [
        ("flat", 1, 0.02, "hutch++", 50),
        ("one large", 1, 0.05, "hutch++", 50),
        ("four large", 1, 0.02, "hutch++", 50),
        ("indefinite", 1, 0.02, "hutch++", 50),
        ("power", 1, 0.03, "hutch++", 55),
        ("geometric", 1, 0.02, "hutch++", 50),
        ("one large", 1, 0.05, "hutchinson", 105),
        ("one large", 4, 0.05, "hutch++", 27),
        ("one large", 8, 0.02, "hutch++", 27),
        ("one large", 20, 0.02, "hutch++", 15),
        ("four large", 20, 0.1, "hutch++", 7),
    ],
)
def test_the_standard_error_is_honest(
    spectrum: str, batches: int, tolerance: float, method: str, products: float
) -> None:
    """A search that stops by its own spread: bias, spread and tails in standard errors, and what it costs."""
    values, seeds = SPECTRA[spectrum].double(), 400
    operator = alike(values, batches) if batches > 1 else rotated(values)
    found = [
        iam.trace(operator, method, tolerance=tolerance, max_matvecs=5000, seed=seed) for seed in range(seeds)
    ]
    assert all(one.converged and 0 < one.stderr <= tolerance * abs(one.value) for one in found)
    away = torch.tensor([(one.value - float(values.sum())) / one.stderr for one in found])
    assert abs(away.mean()) < 0.4
    assert 0.85 < away.std() < 1.25
    assert (away.abs() > 3).double().mean() <= 0.03
    assert sum(one.matvecs for one in found) / seeds < products


def test_a_sketch_saves_products() -> None:
    values = torch.cat([torch.tensor([50.0, 30.0, 20.0, 10.0]), 0.01 * torch.rand(300)])
    costs = [
        iam.trace(rotated(values), m, tolerance=1e-3, max_matvecs=100_000).matvecs
        for m in ("hutch++", "hutchinson")
    ]
    assert costs[0] * 20 < costs[1]


def test_a_sketch_of_everything_is_exact() -> None:
    matrix = rotated(torch.randn(10, generator=torch.Generator().manual_seed(1)))
    found = iam.trace(matrix, tolerance=1e-12, max_matvecs=100)
    assert found == iam.TraceEstimate(found.value, 0.0, found.matvecs, True)
    assert found.value == pytest.approx(float(matrix.trace()), rel=1e-10)


def test_trace_stops_at_its_budget() -> None:
    matrix = rotated(torch.linspace(-1, 1, 200))  # its trace is 0: no relative error is small
    found = iam.trace(matrix, max_matvecs=20)
    assert not found.converged
    assert found.matvecs <= 20
    assert "not converged" in str(found)
    assert not iam.trace(matrix, max_matvecs=3).converged


@pytest.mark.parametrize("budget", [2, 17, 40])
def test_a_budget_too_small_for_a_sketch_is_kept(budget: int) -> None:
    found = iam.trace(rotated(SPECTRA["one large"]), tolerance=1e-3, max_matvecs=budget)
    assert (found.matvecs, found.converged) == (budget, False)


@pytest.mark.parametrize("budget", [2.5, 1])
def test_a_budget_is_an_integer(budget: float) -> None:
    with pytest.raises(ValueError, match=f"max_matvecs must be an integer of 2 or more, found {budget}"):
        iam.trace(torch.eye(4), max_matvecs=budget)  # type: ignore[arg-type]
