"""KL between two softmaxes that are close: value and slopes without cancellation.

Written as it stands, KL is a sum of terms of first order that cancel to second order, and autograd's slope in q the
difference of two numbers close to p: in single precision a confident network (p close to one-hot) keeps nothing of
either. Both have a form in which every term is as small as what it adds up to.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def softmax_kl(clean: Tensor, perturbed: Tensor, dim: int) -> Tensor:
    r"""KL(p || q) of p = softmax(clean) and q = softmax(perturbed), with slopes that sum to 0.

    .. math:: \sum_c p_c \big(e^{a_c} - 1 - a_c\big), \qquad a_c = \log q_c - \log p_c,

    in which no term is negative; :math:`\sum_c p_c (e^{a_c} - 1) = \sum_c q_c - p_c = 0`.

    Shapes: clean and perturbed ``[..., C, ...]``, finite; result without ``dim``.

    >>> softmax_kl(torch.tensor([[20.0, 0.0]]), torch.tensor([[20.001, 0.0]]), dim=1)
    tensor([1.0291e-15])
    """
    value: Tensor = _SoftmaxKL.apply(clean, perturbed, dim)  # type: ignore[no-untyped-call]
    return value


class _SoftmaxKL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, clean: Tensor, perturbed: Tensor, dim: int) -> Tensor:
        p, q, ratio, gap = _parts(clean, perturbed, dim)
        ctx.dim = dim
        ctx.save_for_backward(clean, perturbed, p, q, ratio, gap)
        return (gap - p * ratio).sum(dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        clean, perturbed, *parts = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative will be asked for: these must have a graph
            parts = _parts(clean, perturbed, ctx.dim)
        p, q, ratio, gap = parts
        outer = gradients[0].unsqueeze(ctx.dim)
        at_clean = _balanced(-p * ratio, p, ctx.dim) * outer if ctx.needs_input_grad[0] else None
        at_perturbed = _balanced(gap, q, ctx.dim) * outer if ctx.needs_input_grad[1] else None
        return at_clean, at_perturbed, None


def _parts(clean: Tensor, perturbed: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """p, q, the log-ratio a, and q - p."""
    log_p, log_q = F.log_softmax(clean, dim), F.log_softmax(perturbed, dim)
    p, q, ratio = log_p.exp(), log_q.exp(), log_q - log_p
    gap = torch.where(ratio < 1, p * torch.expm1(ratio.clamp(max=1.0)), q - p)
    return p, q, ratio, gap


def _balanced(slope: Tensor, weights: Tensor, dim: int) -> Tensor:
    """A slope that sums to 0, as those at logits do: what rounding took from a class close to 1 comes back."""
    return slope - weights * slope.sum(dim, keepdim=True)
