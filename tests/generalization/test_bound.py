"""The bound, term by term."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from tests.cases import CASES
from tests.oracles import dense
from torch import Tensor
from torch.nn import functional as F

import torch_iam as iam
from torch_iam.generalization import bound as bounds

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


def focal(z: Tensor, y: Tensor) -> Tensor:
    loss = F.cross_entropy(z, y, reduction="none")
    return ((1 - (-loss).exp()).square() * loss).mean()


WEIGHTS = torch.tensor([1.0, 5.0, 20.0], dtype=torch.float64)
LOSSES = {
    "cross-entropy": F.cross_entropy,
    "smoothed": lambda z, y: F.cross_entropy(z, y, label_smoothing=0.2),
    "a temperature": lambda z, y: F.cross_entropy(3 * z, y),
    "focal": focal,
    "squares": lambda z, y: F.mse_loss(z, F.one_hot(y, 3).double()),
    "classes weighted": lambda z, y: F.cross_entropy(z, y, weight=WEIGHTS),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("params", [None, iam.named("weight")], ids=["all", "chosen"])
def test_the_residual_is_that_of_the_criterion(loss: str, params: Any) -> None:
    """Also where the Gauss-Newton matrix of the criterion is not the Fisher matrix of the model."""
    model, x, y = CASE.model().eval(), CASE.inputs(12), CASE.targets(12)
    criterion = LOSSES[loss]
    found = iam.generalization_bound(
        model, [(x, y)], criterion, 0.1, loss_bound=5, third_derivative_bound=1, tolerance=1e-8, params=params
    )
    names = [name for name, weight in model.named_parameters() for _ in range(weight.numel())]
    rows = torch.tensor([params is None or "weight" in name for name in names])
    f, h = (
        matrix[rows][:, rows] for matrix in (dense.fisher(model, x), dense.hessian(model, x, y, criterion))
    )
    assert found.epsilon_r == pytest.approx(float(torch.linalg.matrix_norm(h - f, 2)), rel=1e-7)
    assert found.lambda_max + found.epsilon_r >= float(torch.linalg.eigvalsh(h)[-1]) - 1e-10
    assert found.converged


@pytest.mark.parametrize("batches", [1, 4])
def test_only_labels_that_count_are_counted(batches: int) -> None:
    """The Fisher matrix is over all inputs, whatever the batches; one of them holds no label that counts."""
    model, x = CASE.model().eval(), CASE.inputs(12)
    y = CASE.targets(12)
    y[[0, 1, 2, 4]] = -100
    data = list(zip(x.chunk(batches), y.chunk(batches), strict=True))
    found = iam.generalization_bound(
        model, data, F.cross_entropy, 0.1, loss_bound=5, third_derivative_bound=1, tolerance=1e-8
    )
    f, h = dense.fisher(model, x), dense.hessian(model, x, y, F.cross_entropy)
    assert found.examples == 8
    assert found.lambda_max == pytest.approx(float(torch.linalg.eigvalsh(f)[-1]), rel=1e-8)
    assert found.epsilon_r == pytest.approx(float(torch.linalg.matrix_norm(h - f, 2)), rel=1e-7)


def test_the_cross_entropy_keeps_the_cheaper_products(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    search = bounds.top_eigenpairs
    monkeypatch.setattr(
        bounds, "top_eigenpairs", lambda matrix, **o: searched.append(type(matrix)) or search(matrix, **o)
    )
    model = CASE.model()
    for precision in (torch.float64, torch.float32):
        model = model.to(precision)
        data = [(x.to(precision), y) for x, y in DATA]
        for criterion in (F.cross_entropy, lambda z, y: F.cross_entropy(z, y, label_smoothing=0.1)):
            iam.generalization_bound(
                model, data, criterion, 0.1, loss_bound=5, third_derivative_bound=1, params=model.parameters()
            )
    assert searched == [iam.FisherOperator, iam.ResidualOperator] * 4


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
