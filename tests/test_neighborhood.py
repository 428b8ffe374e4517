"""Which weights move and how far: laws of the ball."""

from __future__ import annotations

import warnings
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch import nn

import torch_iam as iam
from torch_iam.directions import clear_unless, relative_start, resolution, total_norm

seeds = st.integers(0, 2**31)
METRICS = ["euclidean", "adaptive"]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).double()


def draw(ball: iam.Neighborhood, seed: int, norm: float | None = None) -> list[torch.Tensor]:
    return ball.draw(torch.Generator().manual_seed(seed), norm)


@pytest.mark.parametrize("metric", METRICS)
@hypothesis.given(seeds, st.floats(1e-6, 1e3))
def test_to_sphere_and_resized_reach_rho(metric: str, seed: int, rho: float) -> None:
    ball = iam.Neighborhood(network(), rho, metric=metric)
    delta, ok = ball.to_sphere(draw(ball, seed))
    assert bool(ok.all())
    assert float(ball.lengths(delta)) == pytest.approx(rho, rel=1e-9)
    opposite = ball.resized(draw(ball, seed), sign=-1)
    assert float(ball.lengths(opposite)) == pytest.approx(rho, rel=1e-9)


@pytest.mark.parametrize("metric", METRICS)
@hypothesis.given(seeds)
def test_to_sphere_maximises_the_linear_function(metric: str, seed: int) -> None:
    """No other direction of the same length raises <g, delta> more."""
    ball = iam.Neighborhood(network(), 0.3, metric=metric)
    gradient = draw(ball, seed)
    best, _ = ball.to_sphere([part.clone() for part in gradient])

    def gain(delta: list[torch.Tensor]) -> float:
        return float(sum((g * d).sum() for g, d in zip(gradient, delta, strict=True)))

    for other in range(5):
        assert gain(ball.resized(draw(ball, seed + 1 + other))) <= gain(best) + 1e-12


@pytest.mark.parametrize("metric", METRICS)
@hypothesis.given(seeds)
def test_into_ball_leaves_what_is_inside_and_is_idempotent(metric: str, seed: int) -> None:
    ball = iam.Neighborhood(network(), 0.3, metric=metric)
    inside = ball.resized(draw(ball, seed), sign=0.5)
    kept = ball.into_ball([part.clone() for part in inside])
    assert all(torch.equal(a, b) for a, b in zip(inside, kept, strict=True))
    outside = ball.into_ball(ball.resized(draw(ball, seed), sign=7.0))
    assert float(ball.lengths(outside)) == pytest.approx(0.3, rel=1e-9)


def test_a_start_has_the_expected_norm() -> None:
    model = nn.Linear(300, 300)
    ball = iam.Neighborhood(model, 0.1)
    assert float(ball.lengths(draw(ball, 0, norm=2.5))) == pytest.approx(2.5, rel=0.02)
    weights = total_norm([weight.detach() for weight in model.parameters()])
    expected = relative_start([model.weight]) * float(weights)
    assert float(ball.lengths(draw(ball, 0))) == pytest.approx(expected, rel=0.02)


def test_starts_keep_the_layout_of_the_weights() -> None:
    """Kernels are chosen by layout: theta + delta must not leave channels_last."""
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Linear(8, 2)).to(memory_format=torch.channels_last)
    ball = iam.Neighborhood(model, 0.1)
    for part, weight in zip(draw(ball, 0), ball.weights, strict=True):
        assert part.stride() == weight.stride()
    there = ball.moved(draw(ball, 0), leaf=True)
    assert all(there[n].stride() == w.stride() for n, w in model.named_parameters())


def test_mixed_dtypes() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2).to(torch.bfloat16))
    ball = iam.Neighborhood(model, 0.1)
    drawn = draw(ball, 0)
    assert [part.dtype for part in drawn] == [weight.dtype for weight in ball.weights]


def test_start_and_resolution_follow_the_compute_dtype() -> None:
    single, double = torch.zeros(1), torch.zeros(1, dtype=torch.float64)
    assert resolution([double]) == torch.finfo(torch.float64).eps
    half = single.bfloat16()
    assert relative_start([double]) < relative_start([single]) < relative_start([half]) == 1 / 64
    assert relative_start([single, half]) == relative_start([half, single]) == 1 / 64
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert relative_start([single]) == 1 / 64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("ok", [True, False])
def test_clear_unless(dtype: torch.dtype, ok: bool) -> None:
    bad = torch.tensor([1.5, float("nan"), float("inf"), -0.0], dtype=dtype)
    tensors = [bad.clone(), torch.ones(3, 2, dtype=dtype)]
    clear_unless(torch.tensor(ok), tensors)
    if ok:
        assert torch.equal(tensors[0], bad) or torch.equal(tensors[0].nan_to_num(), bad.nan_to_num())
    else:
        assert all(float(t.abs().sum()) == 0 for t in tensors)


def test_norms_of_tiny_gradients_do_not_vanish() -> None:
    tiny = [torch.full((1000,), 1e-30)]
    assert float(total_norm(tiny)) == pytest.approx(1e-30 * 1000**0.5, rel=1e-5)
    ball = iam.Neighborhood(nn.Linear(10, 10), 0.1)
    delta, ok = ball.to_sphere([torch.full_like(weight, 1e-30) for weight in ball.weights])
    assert bool(ok.all())
    assert float(ball.lengths(delta)) == pytest.approx(0.1, rel=1e-6)


def test_rho_is_a_property_that_schedules_may_set() -> None:
    groups = [{"params": iam.named("0."), "rho": 0.1}, {"params": iam.named("2."), "rho": 0.4}]
    ball = iam.Neighborhood(network(), 1.0, groups)
    ball.rho = 0.2
    assert [group.rho for group in ball.groups] == pytest.approx([0.2, 0.8])
    with pytest.raises(ValueError, match="rho must be"):
        ball.rho = -1.0


def test_filters() -> None:
    model = network()
    names = iam.Neighborhood(model, 0.1, iam.no_norms_and_biases).names
    assert names == ["0.weight", "2.weight"]
    listed = iam.Neighborhood(model, 0.1, [model[2].bias, model[0].weight]).names
    assert listed == ["0.weight", "2.bias"]
    model[0].weight.requires_grad_(False)
    assert "0.weight" not in iam.Neighborhood(model, 0.1).names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rho": 0}, "rho must be a finite number above 0, found 0"),
        ({"rho": -0.1}, "found -0.1"),
        ({"rho": float("inf")}, "found inf"),
        ({"rho": "0.1"}, "found '0.1'"),
        ({"rho": 0.1, "metric": "l1"}, "metric must be one of"),
        (
            {"rho": 0.1, "metric": "adaptive", "eta": -1.0},
            "eta must be a finite number of 0 or more, found -1.0",
        ),
        ({"rho": 0.1, "params": iam.named("lora_")}, "6 of them trainable, and params= chooses none"),
        ({"rho": 0.1, "params": [nn.Parameter(torch.zeros(1))]}, "no parameter of this model"),
        (
            {"rho": 0.1, "params": [{"params": None}, {"params": iam.named("0.")}]},
            "'0.weight' is in two groups",
        ),
        ({"rho": 0.1, "params": [{"params": None, "rho": float("nan")}]}, "found nan"),
    ],
)
def test_errors_that_teach(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        iam.Neighborhood(network(), **options)


def test_biases_alone_have_the_euclidean_metric() -> None:
    ball = iam.Neighborhood(network(), 0.3, params=iam.named("bias"), metric="adaptive")
    delta, ok = ball.to_sphere(draw(ball, 0))
    assert bool(ok.all())
    assert float(total_norm(delta)) == pytest.approx(0.3, rel=1e-12)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_the_coarsest_dtype_decides_wherever_it_stands(half: torch.dtype) -> None:
    """A float32 scale in front of a half precision body: the start must survive, and the gradient too."""

    class Scaled(nn.Module):
        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.scale = nn.Parameter(torch.ones(3, 1, 1))
            self.body = nn.Conv2d(3, 4, 1).to(dtype)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body((x * self.scale).to(self.body.weight.dtype))

    x = torch.randn(8, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    expected = iam.local_inconsistency(Scaled(torch.float32), x, rho=0.5, steps=20, restarts=2)
    found = iam.local_inconsistency(Scaled(half), x, rho=0.5, steps=20, restarts=2)
    assert found.value == pytest.approx(expected.value, rel=0.05)
    assert found.failed == 0


def test_filters_see_the_names_outside_the_compiler() -> None:
    compiled = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), backend="eager")
    ball = iam.Neighborhood(compiled, 0.1, params=lambda name, _: name == "1.weight")
    assert ball.weights == [compiled.get_parameter("_orig_mod.1.weight")]


def test_models_that_cannot_be_moved_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"must be an nn\.Module, found function"):
        iam.Neighborhood(lambda x: x, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = nn.Sequential(nn.Linear(4, 4), torch.jit.script(nn.Linear(4, 3)))
    for build in (iam.Plain, iam.SAM, iam.InconsistencyPenalty):
        with pytest.raises(ValueError, match="'1' is a scripted or traced module"):
            build(scripted)
    with pytest.raises(ValueError, match="'1' is a scripted or traced module"):
        iam.local_inconsistency(scripted, torch.randn(2, 4), rho=0.1)


def test_radii_scale_together_and_are_set_one_by_one() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    groups = [{"params": iam.named("0."), "rho": 0.2}, {"params": iam.named("1.")}]
    ball = iam.Neighborhood(model, 0.1, params=groups)
    ball.rho = 0.5
    assert ball.radii == [0.5, 0.25]
    ball.radii = [0.3, 0.05]
    assert ball.radii == [0.3, 0.05]
    with pytest.raises(ValueError, match="There are 2 groups of weights, found radii for 1"):
        ball.radii = [0.1]
