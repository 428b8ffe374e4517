"""The factor's spectrum is that of the whole matrix."""

from __future__ import annotations

import pytest
import torch
from tests.oracles import dense
from torch import Tensor, nn

from iam_lab.toy.alignment import alignment
from iam_lab.toy.dense import dense_check
from iam_lab.toy.fisher import FisherSpectrum, cosine, fisher_factor
from iam_lab.toy.mixture import Mixture
from iam_lab.toy.network import Training


@pytest.fixture(scope="module")
def toy() -> tuple[nn.Module, Tensor]:
    points, labels = Mixture(count=60).draw()
    return Training(steps=30, sizes=(2, 12, 12, 3)).run(points, labels), points


def test_the_factor_multiplies_to_the_matrix(toy: tuple[nn.Module, Tensor]) -> None:
    factor = fisher_factor(*toy)
    torch.testing.assert_close(factor.T @ factor, dense.fisher(*toy), rtol=1e-10, atol=1e-13)


def test_eigenvalues_and_vectors_are_those_of_the_matrix(toy: tuple[nn.Module, Tensor]) -> None:
    matrix, spectrum = dense.fisher(*toy), FisherSpectrum.of(*toy)
    values = torch.linalg.eigvalsh(matrix).flip(0)
    kept = min(len(values), len(spectrum.eigenvalues))
    torch.testing.assert_close(spectrum.eigenvalues[:kept], values[:kept], rtol=1e-9, atol=1e-12)
    vectors = spectrum.eigenvectors(3)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(3, dtype=vectors.dtype), rtol=0, atol=1e-9)
    torch.testing.assert_close(matrix @ vectors, vectors * spectrum.eigenvalues[:3], rtol=1e-8, atol=1e-11)
    assert spectrum.ratio == pytest.approx(float(values[1] / values[0]))


def test_products_in_the_eigenbasis(toy: tuple[nn.Module, Tensor]) -> None:
    matrix, spectrum = dense.fisher(*toy), FisherSpectrum.of(*toy)
    starts = torch.randn(len(matrix), 4, dtype=matrix.dtype, generator=torch.Generator().manual_seed(0))
    there = spectrum.in_eigenbasis(starts)
    torch.testing.assert_close(there.norm(dim=0), (matrix @ starts).norm(dim=0))
    torch.testing.assert_close(there[:3], spectrum.eigenvectors(3).T @ matrix @ starts)


def test_the_check_against_the_whole_matrix(toy: tuple[nn.Module, Tensor]) -> None:
    check = dense_check(*toy)
    assert check.eigenvalue_difference < 1e-12
    assert check.cosine == pytest.approx(1.0, abs=1e-12)
    assert check.largest == pytest.approx(float(FisherSpectrum.of(*toy).eigenvalues[0]), rel=1e-12)


def test_cosine_of_very_short_vectors() -> None:
    short = torch.full((3,), 1e-12, dtype=torch.float64)
    assert cosine(short, -short) == pytest.approx(1.0)


def test_one_step_is_the_product_with_the_start(toy: tuple[nn.Module, Tensor]) -> None:
    found = alignment(*toy, rho=0.5, starts=3000, checked=5)
    assert min(found.finite) > 0.9999
    assert found.cosines.shape == (3, 3000)
    assert (found.share <= 1 + 1e-12).all()
    torch.testing.assert_close(found.cosines.square().sum(0), found.share)
    means = found.cosines.mean(1)
    assert means[0] > means[1] > means[2]
    # Along v_i the start has a normal coefficient: the medians of their ratios are the eigenvalues' ratios.
    values = FisherSpectrum.of(*toy).eigenvalues
    quotients = (found.cosines[1] / found.cosines[0]).median()
    assert float(quotients) == pytest.approx(float(values[1] / values[0]), rel=0.1)
