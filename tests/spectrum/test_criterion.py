"""What of a criterion cannot be differentiated, and which batch it fails on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.cases import CASES, relative
from tests.oracles import dense
from torch import Tensor, nn
from torch.nn import functional as F

import torch_iam as iam

CASE = CASES[0]
X, Y = CASE.inputs(9), CASE.targets(9)
KINDS = (iam.HessianOperator, iam.ResidualOperator, iam.EmpiricalFisherOperator)
every = pytest.mark.parametrize("kind", KINDS)


class WithPenalty(nn.Module):
    """A model that returns its penalty beside its logits."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = CASE.model()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.inner(x), "penalty": sum(w.square().sum() for w in self.inner.parameters())}


@every
def test_a_criterion_that_reads_the_weights_is_refused(kind: Any) -> None:
    model = CASE.model()

    def decayed(z: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(z, y) + 0.01 * sum(w.square().sum() for w in model.parameters())

    with pytest.raises(
        ValueError, match=r"reads weights of the model by itself \('0.weight', .* and 1 more\)"
    ):
        kind(model, (X, Y), decayed)
    # Where none of these may move, their curvature is not asked for; nor is that of a constant.
    other = CASE.model()
    kind(other, (X, Y), decayed)
    kind(
        model, (X, Y), lambda z, y: F.cross_entropy(z, y) + sum(w.detach().sum() for w in model.parameters())
    )


def test_a_penalty_that_the_model_returns_is_differentiated() -> None:
    model = WithPenalty()

    def decayed(out: dict[str, Tensor], y: Tensor) -> Tensor:
        return F.cross_entropy(out["logits"], y) + 0.01 * out["penalty"]

    hessian = iam.HessianOperator(model, (X, Y), decayed)
    v = torch.ones(hessian.shape[0], dtype=torch.float64)
    assert relative(hessian @ v, dense.hessian(model.inner, X, Y, F.cross_entropy) @ v + 0.02 * v) < 1e-10


def test_a_criterion_may_have_parameters_of_its_own() -> None:
    temperature = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    hessian = iam.HessianOperator(CASE.model(), (X, Y), lambda z, y: F.cross_entropy(z / temperature, y))
    expected = dense.hessian(CASE.model(), X, Y, lambda z, y: F.cross_entropy(z / 2, y))
    v = torch.ones(hessian.shape[0], dtype=torch.float64)
    assert relative(hessian @ v, expected @ v) < 1e-10


@every
@pytest.mark.parametrize("bad", [0, 1])
def test_a_label_out_of_range_names_its_batch(kind: Any, bad: int) -> None:
    y = Y.clone()
    y[(1, 8)[bad]] = 7
    with pytest.raises(
        ValueError, match=rf"Batch {bad}: .*Target 7 is out of bounds.*0 to 7.*0 to 2, of 3\."
    ):
        kind(CASE.model(), [(X[:5], y[:5]), (X[5:], y[5:])], nn.CrossEntropyLoss()) @ torch.ones(51).double()


@every
def test_targets_that_are_not_finite_are_named(kind: Any) -> None:
    wanted = torch.randn(9, 3, dtype=torch.float64)
    wanted[7, 0] = torch.nan
    operator = kind(CASE.model(), [(X[:5], wanted[:5]), (X[5:], wanted[5:])], nn.MSELoss())
    with pytest.raises(FloatingPointError, match=r"in batch 1 \(1 of 2 batches\): its targets hold NaN"):
        operator @ torch.ones(51, dtype=torch.float64)
