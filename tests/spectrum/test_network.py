"""A network of more than 100,000 weights over several unequal batches, beside curvlinops and SciPy."""

from __future__ import annotations

import math
from functools import cache

import curvlinops
import pytest
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from tests.cases import relative
from torch import Tensor, nn
from torch.nn import functional as F

import torch_iam as iam
from torch_iam.spectrum.operator import Operator

SIZES = (5, 20, 9)


@cache
def network() -> nn.Module:
    """A few steps of training apart from its initialisation."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 9, 350),
        nn.Tanh(),
        nn.Linear(350, 4),
    ).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = (torch.cat(parts) for parts in zip(*batches(), strict=True))
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()
    return model.eval()


def batches() -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(1)
    found = []
    for size in SIZES:
        y = torch.randint(0, 4, (size,), generator=draw)
        x = torch.randn(size, 1, 16, 16, generator=draw, dtype=torch.float64) + y[:, None, None, None]
        found.append((x, y))
    return found


def theirs(kind: type) -> curvlinops.HessianLinearOperator:
    model = network()
    return kind(model, nn.CrossEntropyLoss(), list(model.parameters()), batches(), check_deterministic=False)


PAIRS = {
    "fisher": (lambda: iam.FisherOperator(network(), batches()), curvlinops.GGNLinearOperator),
    "hessian": (
        lambda: iam.HessianOperator(network(), batches(), nn.CrossEntropyLoss()),
        curvlinops.HessianLinearOperator,
    ),
}


def adapted(operator: Operator) -> LinearOperator:
    return LinearOperator(
        operator.shape, operator.numpy_matvec, matmat=operator.numpy_matvec, dtype="float64"
    )


@pytest.mark.parametrize("kind", PAIRS)
def test_products_are_those_of_curvlinops(kind: str) -> None:
    ours, other = PAIRS[kind][0](), theirs(PAIRS[kind][1])
    assert ours.shape[0] > 100_000
    block = torch.randn(ours.shape[0], 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert relative(ours @ block, other @ block) < 1e-10


@pytest.mark.parametrize("kind", PAIRS)
def test_eigenpairs_are_those_of_arpack(kind: str) -> None:
    ours = PAIRS[kind][0]()
    found = iam.top_eigenpairs(ours, 3, tolerance=1e-9)
    values, vectors = eigsh(adapted(ours), k=3, which="LA", tol=1e-12)
    assert found.converged
    assert found.values.tolist() == pytest.approx(values[::-1].tolist(), rel=1e-8)
    cosines = (found.vectors.T @ torch.tensor(vectors[:, ::-1].copy())).diag().abs()
    assert torch.allclose(cosines, torch.ones(3).double(), atol=1e-8)


def test_the_trace_is_that_of_the_jacobian() -> None:
    model, data = network(), batches()
    found = iam.fisher_trace(model, data, tolerance=0.02, batch_size=4)
    assert found.converged
    weights, total = list(model.parameters()), 0.0
    for x, _ in data:
        z = model(x)
        p = z.detach().softmax(1)
        # Tr F = E sum_c p_c || grad log p_c ||²
        for i in range(len(x)):
            for c in range(4):
                g = torch.autograd.grad(z[i].log_softmax(0)[c], weights, retain_graph=True)
                total += float(p[i, c] * sum(part.square().sum() for part in g))
    assert abs(found.value - total / sum(SIZES)) < 4 * found.stderr


def test_inconsistency_of_a_small_radius_is_the_largest_eigenvalue() -> None:
    """S / (rho² lambda_max / 2) goes to 1, label smoothing in the loss notwithstanding: it takes no labels."""
    model, data = network(), batches()
    largest = iam.fisher_lambda_max(model, data, tolerance=1e-8)
    smoothed = nn.CrossEntropyLoss(label_smoothing=0.1)
    errors = []
    for rho in (1e-2, 1e-3, 1e-4):
        s = iam.local_inconsistency(model, data, rho, steps=40, restarts=1)
        errors.append(abs(s.value / (rho**2 / 2 * float(largest)) - 1))
    assert errors[2] < 1e-3
    assert errors[1] / errors[2] == pytest.approx(10, rel=0.05)  # what is left is of third order in rho
    residual = iam.ResidualOperator(model, data, smoothed)
    hessian = iam.HessianOperator(model, data, smoothed)
    v = largest.vector
    flat = torch.cat([part.flatten() for part in v.values()])
    curved = float(flat @ (hessian @ flat) - flat @ (residual @ flat))
    assert math.isclose(curved, float(largest), rel_tol=1e-10)
