"""A backward pass that known gradients join gives what autograd gives for the sum of all."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from torch_iam import accumulate as module
from torch_iam.accumulate import accumulate

DOUBLE = torch.float64


def weights() -> list[nn.Parameter]:
    """The last one is in no loss."""
    draw = torch.Generator().manual_seed(0)
    return [
        nn.Parameter(torch.randn(shape, generator=draw, dtype=DOUBLE)) for shape in ((3, 4), (2, 3), (2,))
    ]


def logits_of(first: Tensor, second: Tensor) -> Tensor:
    x = torch.linspace(-1, 1, 20, dtype=DOUBLE).view(5, 4)
    return torch.tanh(x @ first.T) @ second.T


def known() -> tuple[Tensor, list[Tensor]]:
    draw = torch.Generator().manual_seed(1)
    at_logits = torch.randn(5, 2, generator=draw, dtype=DOUBLE)
    return at_logits, [torch.randn(w.shape, generator=draw, dtype=DOUBLE) for w in weights()]


def expected(factor: float) -> list[Tensor]:
    """Of one function that has all of it: known gradients are those of inner products."""
    found, (at_logits, at_weights) = weights(), known()
    logits = logits_of(*found[:2])
    total = factor * logits.square().mean() + (logits * at_logits).sum()
    total = total + sum((w * g).sum() for w, g in zip(found, at_weights, strict=True))
    return list(torch.autograd.grad(total, found))


def run(found: list[nn.Parameter], factor: Tensor | float) -> None:
    at_logits, at_weights = known()
    logits = logits_of(*found[:2])
    accumulate(
        logits.square().mean(), factor, [(logits, at_logits)], list(zip(found, at_weights, strict=True))
    )


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("factor", [2.5, torch.tensor(2.5), torch.tensor([2.5])])
def test_all_parts_add_up_and_a_second_call_adds_to_the_first(
    factor: Tensor | float, captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "nobody_waits", lambda: captured)
    found = weights()
    for times in (1, 2):
        run(found, factor)
        for weight, wanted in zip(found, expected(2.5), strict=True):
            torch.testing.assert_close(weight.grad, times * wanted, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("captured", [False, True])
def test_a_hook_sees_the_whole_gradient_once(captured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "nobody_waits", lambda: captured)
    found, seen = weights(), []
    found[0].register_hook(lambda gradient: seen.append(gradient.clone()))
    found[1].register_post_accumulate_grad_hook(lambda weight: seen.append(weight.grad.clone()))
    run(found, 2.5)
    wanted = expected(2.5)
    assert len(seen) == 2
    for gradient in seen:
        twin = next(part for part in wanted if part.shape == gradient.shape)
        torch.testing.assert_close(gradient, twin, rtol=1e-12, atol=0.0)


def test_a_hook_on_autograds_own_node_sees_it_too() -> None:
    """There DistributedDataParallel and optimizers inside the backward hang; Python cannot ask whether they do."""
    found, seen = weights(), []
    node = found[0].expand_as(found[0]).grad_fn.next_functions[0][0]
    node.register_hook(lambda *_: seen.append(found[0].grad.clone()))
    run(found, 2.5)
    torch.testing.assert_close(seen, [expected(2.5)[0]], rtol=1e-12, atol=0.0)


def test_none_is_no_gradient() -> None:
    weight = nn.Parameter(torch.tensor(3.0))
    square = weight.square()
    accumulate(square, 1.0, [(square, None)], [(weight, None)])
    assert weight.grad == 6.0
