"""KL between softmaxes keeps its digits, and its slopes are derivatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_slope_has_the_dtype_of_its_logits(dtype: torch.dtype) -> None:
    at = [logits.to(dtype).requires_grad_() for logits in confident(0.1)]
    values = iam.CategoricalKL(temperature=0.5)(*at)
    assert values.dtype == torch.float32
    exact = [logits.detach().double().requires_grad_() for logits in at]
    slopes = torch.autograd.grad(iam.CategoricalKL(temperature=0.5)(*exact).sum(), exact)
    for mine, wanted in zip(torch.autograd.grad(values.sum(), at), slopes, strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine.double(), wanted, rtol=2e-2, atol=1e-7)


def test_functional_transforms_and_forward_mode_see_the_same_function() -> None:
    kl, (p, q) = iam.CategoricalKL(), confident(0.1)
    each = torch.func.vmap(lambda a, b: kl(a[None], b[None])[0])(p, q)
    torch.testing.assert_close(each, kl(p, q))
    at = q.clone().requires_grad_()
    (slope,) = torch.autograd.grad(kl(p, at).sum(), at)
    torch.testing.assert_close(torch.func.grad(lambda b: kl(p, b).sum())(q), slope)
    tangents = torch.randn_like(p), torch.randn_like(q)
    _, along = torch.func.jvp(kl, (p, q), tangents)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip((p, q), tangents, strict=True)]
        torch.testing.assert_close(forward_ad.unpack_dual(kl(*duals)).tangent, along)


def test_forward_mode_over_reverse_is_the_second_derivative() -> None:
    """As curvature products of a distillation loss take it: a tangent must pass through what is kept."""
    kl, (p, q) = iam.CategoricalKL(), confident(0.1)
    along = torch.randn(q.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with forward_ad.dual_level():
        at = forward_ad.make_dual(q.clone().requires_grad_(), along)
        (slope,) = torch.autograd.grad(kl(p, at).sum(), at)
        found = forward_ad.unpack_dual(slope).tangent
    probability = torch.softmax(q, 1)
    expected = probability * (along - (probability * along).sum(1, keepdim=True))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("sides", "kept"), [((False, True), 2), ((True, True), 4)])
def test_what_is_kept_for_the_backward(sides: tuple[bool, bool], kept: int) -> None:
    """Of the size of the logits, beside the logits themselves: a vocabulary makes them the largest of a model."""
    at = [torch.randn(4, 50, requires_grad=side) for side in sides]
    mine = {logits.data_ptr() for logits in at}
    saved: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.numel() == 200 and tensor.data_ptr() not in mine:
            saved.append(tensor.data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        iam.CategoricalKL()(*at).sum()
    assert len(set(saved)) == kept
