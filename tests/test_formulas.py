"""Weight normalisation, whose fused kernel has a second derivative that is wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from tests.cases import relative
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

import torch_iam as iam
from torch_iam.formulas import has_weight_norm, weight_norm


def as_hook(module: nn.Module, dim: int | None) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and in many a checkpoint
        return nn.utils.weight_norm(module, dim=dim)


def as_parametrization(module: nn.Module, dim: int | None) -> nn.Module:
    return parametrizations.weight_norm(module, dim=dim)


def slope(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    found = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    return torch.cat([part.flatten() for part in found])


def difference(model: nn.Module, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """H v by a central difference of gradients."""
    weights = list(model.parameters())
    pieces = torch.split(v, [weight.numel() for weight in weights])
    ends = []
    for sign in (1, -2, 1):  # there, to the other side, and back
        with torch.no_grad():
            for weight, piece in zip(weights, pieces, strict=True):
                weight += sign * 1e-5 * piece.view_as(weight)
        ends.append(slope(model, x, y))
    return (ends[0] - ends[1]) / 2e-5


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("normed", [as_hook, as_parametrization])
def test_curvature_of_normalised_weights(
    normed: Callable[[nn.Module, int | None], nn.Module], dim: int | None
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        normed(nn.Conv2d(1, 3, 3), dim), nn.Tanh(), nn.Flatten(), normed(nn.Linear(12, 3), dim)
    ).double()
    x, y = torch.randn(8, 1, 4, 4).double(), torch.arange(8) % 3
    hessian = iam.HessianOperator(model, (x, y), F.cross_entropy)
    u, v = torch.randn(2, hessian.shape[0], dtype=torch.float64)
    of_v = hessian @ v
    assert relative(of_v, difference(model, x, y, v)) < 1e-7
    assert float(u @ of_v) == pytest.approx(float(v @ (hessian @ u)), rel=1e-10)
    sum_of_both = iam.FisherOperator(model, x) @ v + iam.ResidualOperator(model, (x, y), F.cross_entropy) @ v
    assert relative(sum_of_both, of_v) < 1e-10


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_the_plain_formula_is_what_the_kernel_computes(dim: int) -> None:
    v = torch.randn(2, 3, 4, dtype=torch.float64)
    g = torch.norm_except_dim(v, 2, dim) * 3
    assert torch.allclose(weight_norm(v, g, dim), torch._weight_norm(v, g, dim))


def test_only_models_that_have_it_pay_for_it() -> None:
    assert not has_weight_norm(nn.Sequential(nn.Linear(2, 2), parametrizations.orthogonal(nn.Linear(2, 2))))
