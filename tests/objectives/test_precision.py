"""N9: autocast, GradScaler, accumulation, compilation, and the peers' SAM."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.cases import gradient, relative
from tests.objectives.table import RECIPES, Recipe
from torch import nn
from torch.nn import functional as F

import torch_iam as iam

EVERY = [*RECIPES, Recipe("iam-d-one-pass", iam.IAMD, {"rho": 0.1, "start": "carry"})]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10)
    )


X = torch.randn(32, 1, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.randint(0, 10, (32,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("recipe", EVERY, ids=str)
def test_autocast_gradient_is_the_single_precision_one(recipe: Recipe) -> None:
    """To the precision of bfloat16: 8 bits in each of a few layers. rho is one that bfloat16 resolves."""
    grads = []
    for enabled in (False, True):
        model = network()
        rho = 5.0 if recipe.options.get("metric") == "adaptive" or recipe.kind is iam.ASAM else 0.5
        more: dict[str, Any] = {} if recipe.kind is iam.Plain else {"rho": rho}
        if "beta" in recipe.options or recipe.kind is iam.IAMS or recipe.kind is iam.IAMD:
            more["start_norm"] = 0.3
        objective = recipe.objective(model, **more)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            step = objective.backward(X, Y, F.cross_entropy)
        assert all(w.grad is not None and w.grad.dtype == torch.float32 for w in model.parameters())
        assert bool(step.finite)
        grads.append(gradient(model))
    assert relative(grads[1], grads[0]) < 0.1


def test_a_forward_pass_after_ours_keeps_its_gradients_under_autocast() -> None:
    """Weights cast in a pass without gradients must not be found in the cache by a pass with them."""
    model = network()
    objective = iam.IAMS(model, check=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        objective.backward(X, Y, F.cross_entropy)
        model.zero_grad()
        loss = F.cross_entropy(model(X), Y)
    loss.backward()
    assert all(w.grad is not None and float(w.grad.abs().sum()) > 0 for w in model.parameters())


@pytest.mark.parametrize("recipe", EVERY, ids=str)
def test_grad_scaler(recipe: Recipe) -> None:
    """Scaled outside, not inside: after unscaling the gradient is the one without a scaler."""
    plain, scaled = network(), network()
    recipe.objective(plain).backward(X, Y, F.cross_entropy)
    optimizer = torch.optim.SGD(scaled.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    recipe.objective(scaled).backward(X, Y, F.cross_entropy, scaler=scaler)
    assert relative(gradient(scaled), 1024 * gradient(plain)) < 1e-5
    scaler.unscale_(optimizer)
    assert relative(gradient(scaled), gradient(plain)) < 1e-5
    other = network()
    recipe.objective(other).backward(X, Y, F.cross_entropy, scaler=scaler, loss_scale=0.25)
    assert relative(gradient(other), 256 * gradient(plain)) < 1e-5
    scaler.step(optimizer)
    scaler.update()


def test_grad_scaler_skips_a_step_that_overflows() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    before = {name: value.clone() for name, value in model.named_parameters()}
    iam.IAMD(model).backward(X, Y, lambda o, y: 1e3 * F.cross_entropy(o, y), scaler=scaler)
    scaler.step(optimizer)
    scaler.update()
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())
    assert scaler.get_scale() < 2.0**127


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_loss_scale_accumulates_a_mean(recipe: Recipe) -> None:
    whole, halves = network().eval(), network().eval()
    # Two calls climb twice, so what they equal is two sub-batches.
    recipe.objective(whole, sub_batch=16).backward(X, Y, F.cross_entropy)
    objective = recipe.objective(halves)
    for part in (slice(0, 16), slice(16, 32)):
        objective.backward(X[part], Y[part], F.cross_entropy, loss_scale=0.5)
    assert relative(gradient(halves), gradient(whole)) < 1e-4


def test_non_finite_loss_is_reported() -> None:
    model = network()
    step = iam.IAMD(model).backward(X, Y, lambda o, y: F.cross_entropy(o, y) * float("nan"))
    assert not bool(step.finite)


def test_compiled_by_inductor_equals_eager() -> None:
    model = network()
    compiled = torch.compile(network())
    for kind in (iam.IAMD, iam.SAM):
        model.zero_grad()
        compiled.zero_grad()
        kind(model, rho=0.5).backward(X, Y, F.cross_entropy)
        kind(compiled, rho=0.5).backward(X, Y, F.cross_entropy)
        assert relative(gradient(compiled), gradient(model)) < 1e-2
        for a, b in zip(model.buffers(), compiled.buffers(), strict=True):
            assert torch.allclose(a, b)


def test_sam_equals_pytorch_optimizers_sam() -> None:
    """The peer needs two calls, and BatchNorm's statistics apart it does the same to the weights."""
    optimizers = pytest.importorskip("pytorch_optimizer")
    ours, theirs = network().eval(), network().eval()
    objective = iam.SAM(ours, rho=0.05)
    sgd = torch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9)
    peer = optimizers.SAM(theirs.parameters(), torch.optim.SGD, rho=0.05, lr=0.1, momentum=0.9)
    for _ in range(5):
        sgd.zero_grad()
        objective.backward(X, Y, F.cross_entropy)
        sgd.step()
        F.cross_entropy(theirs(X), Y).backward()
        peer.first_step(zero_grad=True)
        F.cross_entropy(theirs(X), Y).backward()
        peer.second_step(zero_grad=True)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)
