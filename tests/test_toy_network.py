"""The paper's toy: at a radius where the theory holds, enough steps give the top eigenvalue of the Fisher matrix.

2-70-70-3, 5,393 weights, trained on a mixture of three Gaussians. K = 10 need not be enough: each step
shrinks the second eigenvector's part by lambda_2 / lambda_1, about 0.66 here. ``iam toy`` measures that.
"""

from __future__ import annotations

import pytest
import torch
from scipy.sparse.linalg import eigsh
from tests.oracles import dense
from torch import Tensor, nn

import torch_iam as iam
from iam_lab.toy.mixture import Mixture
from iam_lab.toy.network import Training

RHO, CONVERGED = 1e-3, 30


@pytest.fixture(scope="module")
def toy() -> tuple[nn.Module, Tensor]:
    points, labels = Mixture().draw()
    return Training().run(points, labels), points


@pytest.fixture(scope="module")
def spectrum(toy: tuple[nn.Module, Tensor]) -> tuple[Tensor, Tensor]:
    """The two largest eigenvalues of the whole 5393 x 5393 matrix, and the top eigenvector."""
    network, points = toy
    jacobian = dense.jacobian(network, points)
    p = dense.logits(network, points).detach().softmax(-1)
    lifted = p[..., None] * (jacobian - (p[..., None] * jacobian).sum(1, keepdim=True))
    matrix = (jacobian.flatten(0, 1).T @ lifted.flatten(0, 1)) / len(points)
    assert matrix.shape == (5393, 5393)
    values, vectors = eigsh(matrix.numpy(), k=2)
    return torch.from_numpy(values).flip(0), torch.from_numpy(vectors)[:, 1]


def test_converged_steps_at_a_small_radius_meet_the_theory(
    toy: tuple[nn.Module, Tensor], spectrum: tuple[Tensor, Tensor]
) -> None:
    network, points = toy
    values, top = spectrum
    theory = RHO**2 / 2 * values[0].item()
    for seed in range(3):
        found = iam.local_inconsistency(network, points, rho=RHO, steps=CONVERGED, restarts=1, seed=seed)
        assert found.value == pytest.approx(theory, rel=3e-3)
        direction = torch.cat([step.flatten() for step in found.direction.values()])
        assert abs(direction @ top) / direction.norm() >= 0.995


def test_ten_steps_are_short_of_it_by_what_the_eigengap_says(
    toy: tuple[nn.Module, Tensor], spectrum: tuple[Tensor, Tensor]
) -> None:
    network, points = toy
    values, _ = spectrum
    ratio = (values[1] / values[0]).item()
    assert 0.6 < ratio < 0.7
    found = iam.local_inconsistency(network, points, rho=RHO, steps=10, restarts=10)
    missed = 1 - found.value / (RHO**2 / 2 * values[0].item())
    # A start has as much of v_2 as of v_1, give or take; about ratio^20 of it is left, more from a few starts.
    assert ratio**20 < missed < 0.02


def test_a_radius_where_the_theory_is_off(
    toy: tuple[nn.Module, Tensor], spectrum: tuple[Tensor, Tensor]
) -> None:
    network, points = toy
    theory = 0.5**2 / 2 * spectrum[0][0].item()
    found = iam.local_inconsistency(network, points, rho=0.5, ascent="projected", steps=60, restarts=2)
    assert found.best > 1.3 * theory
