"""What a product costs, counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import torch_iam as iam

WIDTH, DEPTH = 64, 8
X, Y = torch.randn(16, WIDTH), torch.zeros(16).long()


def network() -> nn.Module:
    """Equal layers, so deep that the first one, whose input needs no gradient, hardly counts."""
    layers = [part for _ in range(DEPTH) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    return nn.Sequential(*layers)


def operations(run: Any) -> float:
    with FlopCounterMode(display=False) as counter:
        run()
    return float(counter.get_total_flops())


@pytest.mark.parametrize(
    ("name", "units"), [("fisher", 5), ("fisher form", 3), ("empirical", 5), ("hessian", 9), ("residual", 9)]
)
@pytest.mark.parametrize("pieces", [1, 4])
def test_passes(name: str, units: float, pieces: int) -> None:
    model = network()
    options = {"batch_size": len(X) // pieces}
    forward = operations(lambda: model(X))
    if name.startswith("fisher"):
        operator: Any = iam.FisherOperator(model, X, **options)
    elif name == "empirical":
        operator = iam.EmpiricalFisherOperator(model, (X, Y), F.cross_entropy, **options)
    else:
        kind = iam.HessianOperator if name == "hessian" else iam.ResidualOperator
        operator = kind(model, (X, Y), F.cross_entropy, **options)
    v = torch.ones(operator.shape[0])
    run = (lambda: operator.quadratics(lambda: v)) if name == "fisher form" else (lambda: operator @ v)
    counted = operations(run) / forward
    assert units - 5 / DEPTH <= counted <= units + 1e-9
