"""Eigenpairs and densities of matrices that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spectrum.matrices import rotated
from torch import Tensor

import torch_iam as iam
from torch_iam.spectrum.operator import Operator

FAST = settings(max_examples=30, deadline=None)


@st.composite
def symmetric(draw: st.DrawFn) -> Tensor:
    """Positive and negative eigenvalues, tiny ones, and where there are no negative ones many zeros."""
    choice = st.sampled_from([-3.0, -1.0, -0.2, 1e-6, 0.01, 0.5, 0.9, 1.0, 2.0, 5.0, 10.0])
    values = draw(st.lists(choice, min_size=1, unique=True))
    if min(values) > 0:
        values += [0.0] * draw(st.integers(0, 20))
    return rotated(torch.tensor(values), draw(st.integers(0, 1000)))


@FAST
@given(symmetric(), st.data())
def test_eigenpairs_of_random_matrices(matrix: Tensor, data: st.DataObject) -> None:
    m = len(matrix)
    k = data.draw(st.integers(1, m))
    which = data.draw(st.sampled_from(["algebraic", "magnitude"]))
    found = iam.top_eigenpairs(matrix, k, which=which, tolerance=1e-9)
    values = torch.linalg.eigvalsh(matrix)
    order = torch.argsort(values.abs() if which == "magnitude" else values, descending=True)
    expected = values[order][:k]
    assert found.converged
    scale = max(float(values.abs().max()), 1e-12)
    shown = (found.values.abs(), expected.abs()) if which == "magnitude" else (found.values, expected)
    assert torch.allclose(*shown, rtol=1e-8, atol=1e-8 * scale)
    assert torch.allclose(found.vectors.T @ found.vectors, torch.eye(k).double(), atol=1e-8)
    error = torch.linalg.vector_norm(matrix @ found.vectors - found.vectors * found.values, dim=0)
    assert (error <= 1e-8 * scale).all()


@pytest.mark.parametrize("k", [1, 2, 5, 12])
@pytest.mark.parametrize("values", [[1.0] * 12, [0.0] * 12, [2.0] * 5 + [0.0] * 7, [3.0] * 3 + [1.0] * 9])
def test_equal_eigenvalues_and_more_than_the_rank(values: list[float], k: int) -> None:
    for seed in range(5):
        found = iam.top_eigenpairs(rotated(torch.tensor(values), seed), k, tolerance=1e-9, seed=seed)
        assert found.converged
        assert torch.allclose(found.values, torch.tensor(values[:k]).double(), atol=1e-9)
        assert torch.allclose(found.vectors.T @ found.vectors, torch.eye(k).double(), atol=1e-9)


@pytest.mark.parametrize("which", ["algebraic", "magnitude"])
def test_restarts_keep_memory_and_find_the_rest(which: str) -> None:
    matrix = rotated(torch.linspace(-1, 1, 300) ** 3)
    found = iam.top_eigenpairs(matrix, 4, which=which, tolerance=1e-8, basis=12, max_matvecs=3000)
    values = torch.linalg.eigvalsh(matrix)
    expected = values[torch.argsort(values.abs() if which == "magnitude" else values, descending=True)][:4]
    assert found.converged
    assert found.iterations > 30
    assert torch.allclose(found.values.abs(), expected.abs(), rtol=1e-10)
    true = torch.linalg.vector_norm(matrix @ found.vectors - found.vectors * found.values, dim=0)
    assert torch.allclose(true, found.residuals, rtol=0.05, atol=1e-12)


def test_stops_as_soon_as_the_residual_is_small() -> None:
    matrix = rotated(torch.cat([torch.tensor([10.0, 9.0]), torch.rand(200)]))
    loose, tight = (iam.top_eigenpairs(matrix, 2, tolerance=t) for t in (1e-2, 1e-10))
    assert loose.iterations < tight.iterations < 30
    assert (loose.residuals <= 1e-2 * loose.values).all()


def test_says_when_it_did_not_converge() -> None:
    found = iam.top_eigenpairs(rotated(torch.linspace(0, 1, 200)), 3, tolerance=1e-12, max_matvecs=10)
    assert not found.converged
    assert found.iterations == 10
    assert found.residuals.max() > 1e-12
    assert not iam.top_eigenpairs(rotated(torch.linspace(0, 1, 20)), 8, max_matvecs=3).converged


def test_same_seed_same_answer_and_a_start_of_ones_own() -> None:
    matrix = rotated(torch.rand(50, generator=torch.Generator().manual_seed(0)))
    one, two, other = (iam.top_eigenpairs(matrix, seed=s).vectors for s in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    again = iam.top_eigenpairs(matrix, start=one[:, 0])
    assert again.iterations < iam.top_eigenpairs(matrix, seed=1).iterations


def test_a_start_at_another_eigenvector_is_left() -> None:
    values = torch.full((40,), 0.001, dtype=torch.float64)
    values[:2] = torch.tensor([1.0, 0.9])
    for seed in range(10):
        start = torch.zeros(40, dtype=torch.float64)
        start[1] = 1.0
        start += 1e-5 * torch.randn(40, generator=torch.Generator().manual_seed(seed)).double()
        found = iam.top_eigenpairs(torch.diag(values), start=start, tolerance=1e-3, seed=seed)
        assert float(found.values[0]) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("m", [1, 3, 100])
def test_no_search_stops_at_first_sight(m: int) -> None:
    matrix = torch.eye(m, dtype=torch.float64) + torch.diag(1e-3 * torch.rand(m).double())
    for start in (None, torch.ones(m, dtype=torch.float64)):
        found = iam.top_eigenpairs(matrix, tolerance=0.1, start=start)
        assert found.converged
        assert found.iterations - min(5, m) in (0, m < 5)  # where rounding is left, one more to measure it
    assert m < 5 or not iam.top_eigenpairs(matrix, tolerance=0.1, max_matvecs=3).converged


def test_residuals_are_those_of_the_vectors_where_rounding_counts() -> None:
    values = torch.cat([torch.tensor([100.0, 50.0, 20.0]), torch.rand(200)])
    matrix = rotated(values).float()
    found = iam.top_eigenpairs(matrix, 2, tolerance=1e-5, basis=200)
    true = torch.linalg.vector_norm(
        matrix.double() @ found.vectors.double() - found.vectors.double() * found.values, dim=0
    )
    assert found.converged
    assert (found.residuals > 0.3 * true).all()
    # Beyond single precision the recursion would promise anything.
    assert not iam.top_eigenpairs(Noisy(matrix), tolerance=1e-9).converged
    short = iam.top_eigenpairs(matrix, tolerance=1e-5, max_matvecs=products_without_a_check(matrix))
    assert float(short.residuals[0]) >= 1e-5 * float(short.values[0])


def products_without_a_check(matrix: Tensor) -> int:
    """Products of a search that has none left for measuring its residual."""
    return iam.top_eigenpairs(matrix, tolerance=1e-5).iterations - 1


class Noisy(iam.MatrixOperator):
    """Products that are off by 1e-6, as those of a network in single precision are."""

    def _multiply(self, block: Tensor) -> Tensor:
        noise = torch.randn(block.shape, generator=torch.Generator().manual_seed(int(block.sum() * 1e6)))
        image = super()._multiply(block)
        return image + 1e-6 * image.norm() * noise / noise.norm()


def test_under_autocast_the_algebra_keeps_its_precision() -> None:
    matrix = rotated(torch.cat([torch.tensor([5.0, 4.0]), torch.rand(30)])).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = iam.top_eigenpairs(matrix, 2, tolerance=1e-5)
        density = iam.spectral_density(matrix, steps=10, probes=2)
        total = iam.trace(matrix, tolerance=1e-5)
    assert torch.allclose(found.values, torch.tensor([5.0, 4.0]).double(), rtol=1e-6)
    assert torch.equal(density.nodes, iam.spectral_density(matrix, steps=10, probes=2).nodes)
    assert total == iam.trace(matrix, tolerance=1e-5)


def test_counts_of_other_libraries() -> None:
    assert len(iam.top_eigenpairs(torch.eye(4), np.int64(2)).values) == 2
    assert iam.spectral_density(torch.eye(4), steps=np.int64(3), probes=np.int32(1)).probes == 1
    with pytest.raises(ValueError, match="found 1"):
        iam.top_eigenpairs(torch.eye(4), 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="basis must be an integer of 1 or more"):
        iam.top_eigenpairs(torch.eye(4), basis=7.5)  # type: ignore[arg-type]
    assert len(iam.top_eigenpairs(torch.eye(40), basis=np.int32(7)).values) == 1


def test_arrays_of_every_layout() -> None:
    operator = iam.MatrixOperator(rotated(torch.arange(5.0)))
    vector, block = np.arange(5.0), np.arange(10.0).reshape(2, 5)
    for array in (vector[::-1], block[::-1].T, np.broadcast_to(vector[:, None], (5, 2))):
        expected = operator.matrix.numpy() @ array
        assert np.allclose(operator.numpy_matvec(array), expected)
    assert np.allclose(operator.numpy_matvec([1.0] * 5), operator.matrix.sum(1))


def test_single_precision() -> None:
    matrix = rotated(torch.cat([torch.tensor([100.0, 50.0, 20.0]), torch.rand(200)])).float()
    found = iam.top_eigenpairs(matrix, 3, tolerance=1e-5)
    assert found.converged
    assert found.vectors.dtype == torch.float32
    assert torch.allclose(found.values, torch.tensor([100.0, 50.0, 20.0]).double(), rtol=1e-5)


def test_progress_is_told() -> None:
    seen: list[tuple[int, float]] = []
    matrix = rotated(torch.rand(60))
    found = iam.top_eigenpairs(matrix, 2, progress=lambda n, e: seen.append((n, e)))
    assert [n for n, _ in seen] == list(range(1, found.iterations + 1))
    assert seen[0][1] == math.inf
    assert seen[-1][1] <= 1e-4
    seen.clear()
    iam.trace(matrix, progress=lambda n, e: seen.append((n, e)))
    assert seen[-1][1] <= 0.01
    seen.clear()
    iam.spectral_density(matrix, steps=5, probes=2, progress=lambda n, e: seen.append((n, e)))
    assert seen == [(5, 0.5), (10, 0.0)]


def test_density_has_the_moments_of_the_matrix() -> None:
    values = torch.cat([torch.tensor([5.0]), torch.linspace(-1, 1, 400)])
    found = iam.spectral_density(rotated(values), steps=30, probes=60)
    assert float(found.weights.sum()) == pytest.approx(1)
    for power, slack in ((1, 0.01), (2, 0.02)):
        moment = float((found.weights * found.nodes**power).sum())
        assert moment == pytest.approx(float((values**power).mean()), abs=slack)
    assert float(found.nodes[-1]) == pytest.approx(5.0, rel=1e-6)
    assert float(torch.trapezoid(found.density, found.grid)) == pytest.approx(1, abs=1e-3)
    assert found.matvecs == 30 * 60
    assert (found.density >= 0).all()


def test_density_of_few_eigenvalues_closes_early() -> None:
    found = iam.spectral_density(rotated(torch.tensor([0.0] * 30 + [1.0] * 10)), steps=20, probes=50)
    assert found.matvecs == 2 * 50
    assert float(found.weights[found.nodes > 0.5].sum()) == pytest.approx(0.25, abs=0.05)
    flat = iam.spectral_density(torch.zeros(5, 5), probes=1)
    assert torch.isfinite(flat.density).all()


class Counting(Operator):
    """A diagonal, applied to blocks; counts its columns."""

    def __init__(self) -> None:
        self.shape, self.dtype, self.device = (6, 6), torch.float64, torch.device("cpu")
        self.columns = 0

    def _multiply(self, block: Tensor) -> Tensor:
        self.columns += block.shape[1]
        return torch.arange(6.0).double()[:, None] * block


def test_an_operator_of_ones_own() -> None:
    operator = Counting()
    assert float(iam.top_eigenpairs(operator).values) == pytest.approx(5)
    assert torch.equal((operator - operator) @ torch.ones(6), torch.zeros(6).double())
    assert operator.matvec(torch.ones(6, 0)).shape == (6, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: iam.top_eigenpairs(a, 6), "k must be between 1 and the dimension 5"),
        (lambda a: iam.top_eigenpairs(a, 0), "k must be an integer of 1 or more"),
        (lambda a: iam.top_eigenpairs(a, which="largest"), "which must be one of"),
        (lambda a: iam.top_eigenpairs(a, tolerance=0), "tolerance must be above 0"),
        (lambda a: iam.top_eigenpairs(a, 2, basis=3), "basis must be k \\+ 2 = 4"),
        (lambda a: iam.top_eigenpairs(a, start=torch.zeros(5)), "start must be a finite vector of 5"),
        (lambda a: iam.top_eigenpairs(a, start=torch.ones(4)), "start must be a finite vector of 5"),
        (lambda a: iam.trace(a, "hutch"), "method must be one of"),
        (lambda a: iam.trace(a, tolerance=-1), "tolerance must be above 0"),
        (lambda a: iam.spectral_density(a, steps=0), "steps must be an integer of 1"),
        (lambda a: iam.spectral_density(a, bandwidth=0), "bandwidth must be above 0"),
        (lambda a: iam.MatrixOperator(a[:3]), "square matrix"),
        (lambda a: iam.MatrixOperator(a.triu() + 1), "not symmetric"),
        (lambda a: iam.MatrixOperator(a) @ torch.ones(4), "multiplies vectors \\[5\\]"),
        (lambda a: iam.MatrixOperator(a) @ torch.full((5,), torch.nan), "NaN or infinity"),
        (lambda a: iam.MatrixOperator(a) - iam.MatrixOperator(a[:2, :2]), "have no difference"),
    ],
)
def test_errors(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(rotated(torch.arange(5.0)))  # type: ignore[operator]
