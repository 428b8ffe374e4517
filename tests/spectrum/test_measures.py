"""The usual numbers in one call."""

from __future__ import annotations

import pytest
import torch
from tests.cases import CASES
from torch.nn import functional as F

import torch_iam as iam

CASE = CASES[0]
X, Y = CASE.inputs(7), CASE.targets(7)
BATCHES = [(X[:2], Y[:2]), (X[2:], Y[2:])]


def test_numbers_of_the_short_forms() -> None:
    model = CASE.model()
    exact = iam.FisherOperator(model, X) @ torch.eye(51, dtype=torch.float64)
    found = iam.fisher_lambda_max(model, X, tolerance=1e-8)
    assert float(found) == pytest.approx(float(torch.linalg.eigvalsh(exact)[-1]), rel=1e-10)
    assert found.vector.keys() == dict(model.named_parameters()).keys()
    assert "products" in str(found)
    trace = iam.fisher_trace(model, X, tolerance=0.01, max_matvecs=5000)
    assert abs(float(trace) - float(exact.trace())) < 4 * trace.stderr + 1e-9
    hessian = iam.HessianOperator(model, BATCHES, F.cross_entropy) @ torch.eye(51, dtype=torch.float64)
    largest = iam.hessian_lambda_max(model, BATCHES, F.cross_entropy, tolerance=1e-8)
    assert float(largest) == pytest.approx(float(torch.linalg.eigvalsh(hessian)[-1]), rel=1e-10)
    trace = iam.hessian_trace(model, BATCHES, F.cross_entropy, tolerance=0.02, max_matvecs=5000)
    assert abs(float(trace) - float(hessian.trace())) < 4 * trace.stderr + 1e-9
    assert "products" in str(trace)


def test_a_warm_start_saves_products() -> None:
    """From the vector of the epoch before, and from the direction of an estimate of S."""
    model = CASE.model()
    before = iam.fisher_lambda_max(model, X, tolerance=1e-3).vector
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.001)
    near = iam.local_inconsistency(model, X, rho=1e-3, steps=10, restarts=2).direction
    cold = iam.fisher_lambda_max(model, X, tolerance=1e-3)
    for start in (before, near):
        warm = iam.fisher_lambda_max(model, X, tolerance=1e-3, start=start)
        assert warm.matvecs < cold.matvecs
        assert float(warm) == pytest.approx(float(cold), rel=1e-5)
    operator = iam.FisherOperator(model, X)
    vector = torch.arange(51.0).double()
    assert torch.equal(operator.vector_of(operator.by_name(vector)), vector)


@pytest.mark.parametrize("missing", ["name", "shape", "more"])
def test_a_start_belongs_to_the_same_weights(missing: str) -> None:
    model = CASE.model()
    start = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    first = next(iter(start))
    if missing == "name":
        del start[first]
    elif missing == "shape":
        start[first] = start[first].flatten()
    else:
        start["another"] = start[first]
    with pytest.raises(ValueError, match="A direction has a tensor in the shape of each"):
        iam.hessian_lambda_max(model, BATCHES, F.cross_entropy, start=start)
