"""What a product keeps for its backward, counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.spectrum.test_dense import WithoutForwardMode
from torch import Tensor, nn
from torch.nn import functional as F

import torch_iam as iam

X, Y = torch.randn(12, 4), torch.arange(12) % 3


class Ledger:
    """Bytes that live graphs hold for their backwards, and the most there were at a time."""

    def __init__(self) -> None:
        self.now = self.peak = 0

    def measure(self, work: Callable[[], Any]) -> int:
        self.now = self.peak = 0
        with torch.autograd.graph.saved_tensors_hooks(self.keep, lambda kept: kept.tensor):
            work()
        assert self.now == 0  # nothing outlives a product
        return self.peak

    def keep(self, tensor: Tensor) -> Kept:
        return Kept(self, tensor.detach())  # an operation's own result would keep the operation alive


class Kept:
    """One tensor of a graph, which reports when it comes and when it goes."""

    def __init__(self, ledger: Ledger, tensor: Tensor) -> None:
        self.ledger, self.tensor = ledger, tensor
        ledger.now += tensor.nbytes
        ledger.peak = max(ledger.peak, ledger.now)

    def __del__(self) -> None:
        self.ledger.now -= self.tensor.nbytes


def product(kind: str, model: nn.Module, batches: int) -> Callable[[], Any]:
    data = [(X, Y)] * batches
    if kind.startswith("fisher"):
        operator: Any = iam.FisherOperator(model, data)
    else:
        operator = {
            "hessian": iam.HessianOperator,
            "residual": iam.ResidualOperator,
            "empirical": iam.EmpiricalFisherOperator,
        }[kind](model, data, F.cross_entropy)
    v = torch.ones(operator.shape[0], 2)
    operator @ v  # what breaks in forward mode is known from here on
    return (lambda: operator.quadratics(lambda: v[:, 0])) if kind == "fisher form" else (lambda: operator @ v)


@pytest.mark.parametrize("forward_mode", [True, False])
@pytest.mark.parametrize("kind", ["fisher", "fisher form", "empirical", "hessian", "residual"])
def test_a_product_holds_the_graph_of_one_batch(kind: str, forward_mode: bool) -> None:
    model = WithoutForwardMode()
    model = model if not forward_mode else model.body
    one, many = (Ledger().measure(product(kind, model, batches)) for batches in (1, 5))
    assert many == one
    assert one > 0 or kind == "fisher form"
