"""KL between softmaxes keeps its digits, and its slopes are derivatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import torch_iam as iam

KINDS = [iam.CategoricalKL(), iam.BernoulliKL()]


def confident(loss: float) -> tuple[Tensor, Tensor]:
    """Logits of ten classes whose most likely one has a cross-entropy of about ``loss``, and others close by."""
    draw = torch.Generator().manual_seed(0)
    clean = torch.randn(64, 10, generator=draw, dtype=torch.float64)
    clean[:, 0] += torch.logsumexp(clean[:, 1:], 1) - clean[:, 0] - torch.tensor(loss).expm1().log()
    return clean, clean + 0.1 * torch.randn(64, 10, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("loss", [1e-1, 1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("divergence", KINDS, ids=str)
def test_single_precision_is_enough_for_a_confident_network(divergence: Any, loss: float) -> None:
    """Value and both slopes to nearly the digits of the logits, which are the same numbers here."""
    clean, perturbed = (logits.float() for logits in confident(loss))
    found, exact = [], []
    for dtype, into in ((torch.float32, found), (torch.float64, exact)):
        at = [logits.to(dtype).requires_grad_() for logits in (clean, perturbed)]
        values = divergence(*at)
        into += [values.detach(), *torch.autograd.grad(values.sum(), at)]
    assert bool((found[0] > 0).all())
    for mine, wanted in zip(found, exact, strict=True):
        assert float((mine.double() - wanted).norm() / wanted.norm()) < 2e-5


@pytest.mark.parametrize("divergence", KINDS, ids=str)
def test_slopes_are_derivatives_twice_over(divergence: Any) -> None:
    draw = torch.Generator().manual_seed(0)
    at = [2 * torch.randn(3, 4, generator=draw, dtype=torch.float64) for _ in "pq"]
    at = [logits.requires_grad_() for logits in at]
    assert torch.autograd.gradcheck(divergence, at)
    assert torch.autograd.gradgradcheck(divergence, at)


def test_far_apart_where_a_ratio_overflows() -> None:
    p, q = torch.tensor([[200.0, 0.0]]), torch.tensor([[0.0, 200.0]], requires_grad=True)
    value = iam.CategoricalKL()(p, q)
    assert float(value.detach()) == pytest.approx(200)
    (slope,) = torch.autograd.grad(value.sum(), q)
    torch.testing.assert_close(slope, torch.tensor([[-1.0, 1.0]]))
