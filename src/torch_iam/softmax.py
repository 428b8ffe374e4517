"""KL between two softmaxes that are close: value and slopes without cancellation.

Written as it stands, KL is a sum of terms of first order that cancel to second order, and autograd's slope in q the
difference of two numbers close to p: in single precision a confident network (p close to one-hot) keeps nothing of
either. Both have a form in which every term is as small as what it adds up to.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.nn import functional as F

EXCLUDED = -1e9
"""The logit of what cannot be: finite, so that 0 * (log p - log q) is 0 and not NaN."""


def softmax_kl(clean: Tensor, perturbed: Tensor, dim: int, temperature: float = 1.0) -> Tensor:
    r"""KL(p || q) of p = softmax(clean / T) and q = softmax(perturbed / T), with slopes that sum to 0.

    .. math:: \sum_c p_c \big(e^{a_c} - 1 - a_c\big), \qquad a_c = \log q_c - \log p_c,

    in which no term is negative; :math:`\sum_c p_c (e^{a_c} - 1) = \sum_c q_c - p_c = 0`. In single precision or
    better whatever the logits are, and a class that is masked out with -inf has probability 0.

    Shapes: clean and perturbed ``[..., C, ...]``; result without ``dim``.

    >>> value = softmax_kl(torch.tensor([[20.0, 0.0]]), torch.tensor([[20.001, 0.0]]), dim=1)
    >>> f"{float(value):.2e}"
    '1.03e-15'
    """
    if torch._C._are_functorch_transforms_active():  # these take operations alone
        p, _, ratio, gap = _parts(clean, perturbed, dim, temperature)
        return (gap - p * ratio).sum(dim)
    value: Tensor = _SoftmaxKL.apply(clean, perturbed, dim, temperature)  # type: ignore[no-untyped-call]
    return value


def precise(logits: Tensor) -> Tensor:
    """In single precision or better."""
    return logits if logits.dtype == torch.float64 else logits.float()


def finite(logits: Tensor) -> Tensor:
    """In single precision or better, and -inf as a number."""
    return F.threshold(precise(logits), EXCLUDED, EXCLUDED)  # a clamp, but for a shorter backward


class _SoftmaxKL(torch.autograd.Function):
    """Keeps for the backward what it needs there, and beside that the logits themselves, which live anyway."""

    @staticmethod
    def forward(ctx: Any, clean: Tensor, perturbed: Tensor, dim: int, temperature: float) -> Tensor:
        p, q, ratio, gap = _parts(clean, perturbed, dim, temperature)
        ctx.dim, ctx.temperature = dim, temperature
        of_clean = (p, ratio) if ctx.needs_input_grad[0] else (None, None)
        of_perturbed = (q, gap) if ctx.needs_input_grad[1] else (None, None)
        ctx.save_for_backward(clean, perturbed, *of_clean, *of_perturbed)
        ctx.save_for_forward(clean, perturbed)
        return torch.addcmul(gap, p, ratio, value=-1).sum(dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        clean, perturbed, p, ratio, q, gap = ctx.saved_tensors
        if torch.is_grad_enabled() or _has_tangent(clean) or _has_tangent(perturbed):
            # A second derivative is asked for: what it passes through must come from the logits.
            p, q, ratio, gap = _parts(clean, perturbed, ctx.dim, ctx.temperature)
        outer = gradients[0].unsqueeze(ctx.dim)
        outer = outer if ctx.temperature == 1 else outer / ctx.temperature
        at_clean = at_perturbed = None
        if ctx.needs_input_grad[0]:
            at_clean = (_balanced(-p * ratio, p, ctx.dim) * outer).to(clean.dtype)
        if ctx.needs_input_grad[1]:
            at_perturbed = (_balanced(gap, q, ctx.dim) * outer).to(perturbed.dtype)
        return at_clean, at_perturbed, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        clean, perturbed = ctx.saved_tensors[:2]
        p, q, ratio, gap = _parts(clean, perturbed, ctx.dim, ctx.temperature)
        slopes = (_balanced(-p * ratio, p, ctx.dim), _balanced(gap, q, ctx.dim))
        parts = [
            (slope * tangent).sum(ctx.dim) / ctx.temperature
            for slope, tangent in zip(slopes, tangents, strict=False)
            if tangent is not None
        ]
        return torch.stack(parts).sum(0)


def _parts(
    clean: Tensor, perturbed: Tensor, dim: int, temperature: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """p, q, the log-ratio a, and q - p."""
    log_p, log_q = (F.log_softmax(_heated(logits, temperature), dim) for logits in (clean, perturbed))
    p, q, ratio = log_p.exp(), log_q.exp(), log_q - log_p
    gap = torch.where(ratio < 1, p * torch.expm1(ratio.clamp(max=1.0)), q - p)
    return p, q, ratio, gap


def _heated(logits: Tensor, temperature: float) -> Tensor:
    return finite(logits) if temperature == 1 else finite(logits) / temperature


def _balanced(slope: Tensor, weights: Tensor, dim: int) -> Tensor:
    """A slope that sums to 0, as those at logits do: what rounding took from a class close to 1 comes back."""
    return slope - weights * slope.sum(dim, keepdim=True)


def _has_tangent(tensor: Tensor) -> bool:
    return forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]
