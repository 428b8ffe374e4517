"""The bound, term by term."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from tests.cases import CASES
from tests.oracles import dense
from torch.nn import functional as F

import torch_iam as iam

CASE = CASES[0]
DATA = [(CASE.inputs(8)[:3], CASE.targets(8)[:3]), (CASE.inputs(8)[3:], CASE.targets(8)[3:])]


def bound(**options: Any) -> iam.GeneralizationBound:
    settings = {"rho": 0.1, "loss_bound": 5.0, "third_derivative_bound": 2.0, "tolerance": 1e-8, **options}
    return iam.generalization_bound(CASE.model(), DATA, F.cross_entropy, **settings)


def test_every_term() -> None:
    found, model = bound(xi=0.02, constant=3.0), copy.deepcopy(CASE.model()).eval()
    x, y = CASE.inputs(8), CASE.targets(8)
    f, h = dense.fisher(model, x), dense.hessian(model, x, y, F.cross_entropy)
    largest = float(torch.linalg.eigvalsh(f)[-1])
    rest = float(torch.linalg.matrix_norm(h - f, 2))
    m, n = len(f), 8
    norm2 = sum(w.detach().square().sum().item() for w in model.parameters())
    assert found.loss == pytest.approx(F.cross_entropy(model(x), y).item(), rel=1e-10)
    assert found.lambda_max == pytest.approx(largest, rel=1e-8)
    assert found.epsilon_r == pytest.approx(rest, rel=1e-8)
    assert found.curvature == pytest.approx(0.005 * (largest + rest), rel=1e-8)
    assert found.third_order == pytest.approx(2.0 * m**1.5 * 1e-3 / 6)
    root = m * math.log(1 + norm2 / 0.01) + 2 * math.log(50) + 4 * math.log(n + m) + 3.0
    assert found.complexity == pytest.approx(5 / (2 * math.sqrt(n)) * math.sqrt(root))
    assert found.total == found.loss + found.curvature + found.third_order + found.complexity
    assert (found.weights, found.examples, found.converged) == (m, n, True)
    # Weyl: what the bound replaces the Hessian's eigenvalue by is no smaller.
    assert float(torch.linalg.eigvalsh(h)[-1]) <= largest + rest


def test_says_that_it_is_vacuous() -> None:
    found = bound()
    assert found.vacuous
    assert "vacuous: the loss stays below 5 anyway" in str(found)
    useful = iam.GeneralizationBound(0.1, 0.1, 0.0, 0.1, 5.0, 1.0, 0.0, 1, 1.0, 10, 0.1, 0.05, True)
    assert not useful.vacuous


def test_an_assumed_residual_is_not_measured() -> None:
    assert bound(epsilon_r=0.0).curvature == pytest.approx(0.005 * bound().lambda_max)


def test_over_chosen_weights() -> None:
    found = bound(params=iam.no_norms_and_biases)
    assert found.weights == sum(w.numel() for w in CASE.model().parameters() if w.ndim > 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rho": 0.0}, "rho must be"),
        ({"loss_bound": math.inf}, "loss_bound must be a finite number"),
        ({"third_derivative_bound": -1.0}, "third_derivative_bound must be 0 or more"),
        ({"xi": 1.0}, "xi must be between"),
        ({"epsilon_r": -0.1}, "epsilon_r must be 0 or more"),
    ],
)
def test_errors(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bound(**options)
