"""J v of a model, in forward mode and where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.cases import CASES, Case
from torch import Tensor, nn

from torch_iam.derivatives import Derivatives
from torch_iam.formulas import differentiable_twice
from torch_iam.inputs import logits_of
from torch_iam.perturb import Visit

EAGER = [case for case in CASES if case.name != "compiled"]


class _NoForwardMode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * x.cos()


class Reverse(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return _NoForwardMode.apply(super().forward(x))


@pytest.mark.parametrize("case", [*EAGER, Case("reverse", lambda: Reverse(4, 3), (4,))], ids=str)
@pytest.mark.parametrize("beside_graph", [False, True])
def test_jacobian_vector_against_finite_differences(case: Case, beside_graph: bool) -> None:
    model = case.model().eval()
    visit = Visit(model, case.inputs(), leave_trace=False)
    here = {name: weight.detach() for name, weight in model.named_parameters()}
    tangent = {name: torch.randn_like(weight) for name, weight in here.items()}
    derivatives = Derivatives(logits_of)
    with differentiable_twice(model):
        if beside_graph:
            found = derivatives.beside_graph(visit.at, here, tangent, lambda _, pushed, leaves: pushed)
        else:
            found = derivatives.pushed(visit.at, here, tangent)[1]
    step = 1e-6
    with torch.no_grad():
        ends = [visit.at({n: w + sign * step * tangent[n] for n, w in here.items()}) for sign in (1, -1)]
    assert torch.allclose(found, (ends[0] - ends[1]) / (2 * step), atol=1e-6)
