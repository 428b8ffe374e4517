"""What every operator keeps, and what it says when it cannot."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import CASES, Case, relative
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import torch_iam as iam
from torch_iam.spectrum.curvature import CurvatureOperator

CASE = CASES[0]
X, Y = CASE.inputs(7), CASE.targets(7)
BATCHES = [(X[:2], Y[:2]), (X[2:], Y[2:])]

KINDS = {
    "empirical": iam.EmpiricalFisherOperator,
    "hessian": iam.HessianOperator,
    "residual": iam.ResidualOperator,
}


def of_loss(kind: str) -> Callable[[Case, nn.Module], CurvatureOperator]:
    return lambda case, model: KINDS[kind](model, (case.inputs(), case.targets()), case.criterion)


BUILD: dict[str, Callable[[Case, nn.Module], CurvatureOperator]] = {
    "fisher": lambda case, model: iam.FisherOperator(model, case.inputs()),
    **{kind: of_loss(kind) for kind in KINDS},
}
every = pytest.mark.parametrize("kind", BUILD)


@every
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_linear_symmetric_and_semidefinite(kind: str, data: st.DataObject) -> None:
    operator = BUILD[kind](CASE, CASE.model())
    draw = torch.Generator().manual_seed(data.draw(st.integers(0, 10_000)))
    u, v = torch.randn(2, operator.shape[0], generator=draw, dtype=torch.float64)
    a, b = data.draw(st.floats(-3, 3)), data.draw(st.floats(-3, 3))
    au, av = operator @ u, operator @ v
    scale = float(au.norm() + av.norm())
    assert (operator @ (a * u + b * v) - a * au - b * av).norm() < 1e-11 * max(1, abs(a) + abs(b)) * scale
    assert abs(float(u @ av - v @ au)) < 1e-11 * scale * float(u.norm() + v.norm())
    assert torch.allclose(operator @ torch.stack([u, v], 1), torch.stack([au, av], 1), rtol=1e-12, atol=1e-14)
    assert torch.allclose(operator.quadratics(lambda: u).sum(), u @ au)
    if kind in ("fisher", "empirical"):
        assert u @ au >= 0


@every
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_model_is_left_as_it_was(kind: str, case: Case) -> None:
    model = case.model()
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    list(model.modules())[-1].eval()
    modes = [module.training for module in model.modules()]
    state = copy.deepcopy(model.state_dict())
    stream = torch.get_rng_state()
    operator = BUILD[kind](case, model)
    drawn = torch.ones(operator.shape[0], dtype=torch.float64)
    assert torch.equal(operator @ drawn, operator @ drawn)
    operator.quadratics(lambda: drawn)
    assert torch.equal(stream, torch.get_rng_state())
    assert modes == [module.training for module in model.modules()]
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), state.values(), strict=True))
    assert all(bool((w.grad == 1).all()) for w in model.parameters() if w.grad is not None)


@every
def test_also_under_no_grad_and_in_single_precision(kind: str) -> None:
    exact = BUILD[kind](CASE, CASE.model())
    v = torch.ones(exact.shape[0], dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(exact @ v, exact @ v)
        single = BUILD[kind](Single(CASE), CASE.model().float())
        assert single.dtype == torch.float32
        assert relative((single @ v).double(), exact @ v) < 1e-5


class Single:
    """A case in float32."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def __getattr__(self, name: str) -> Any:
        return getattr(self.case, name)

    def inputs(self) -> Tensor:
        return self.case.inputs().float()


def test_batches_come_in_every_form() -> None:
    v = torch.ones(51, dtype=torch.float64)
    model = CASE.model()
    whole = iam.HessianOperator(model, (X, Y), F.cross_entropy) @ v
    loader = DataLoader(TensorDataset(X, Y), batch_size=3)
    rows = [{"it": x, "at": y} for x, y in BATCHES]
    for found in (
        iam.HessianOperator(model, BATCHES, F.cross_entropy),
        iam.HessianOperator(model, iter(BATCHES), F.cross_entropy),
        iam.HessianOperator(model, [(X, Y)], F.cross_entropy, batch_size=2),
        iam.HessianOperator(model, loader, nn.CrossEntropyLoss()),
        iam.HessianOperator(model, rows, F.cross_entropy, split=lambda row: (row["it"], row["at"])),
        iam.HessianOperator(model, BATCHES, nn.CrossEntropyLoss(reduction="sum")),
        iam.HessianOperator(model, BATCHES, lambda z, y: F.cross_entropy(z, y, reduction="sum")),
    ):
        assert relative(found @ v, whole) < 1e-12
        assert found.examples == 7

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, pixels: Tensor) -> dict[str, Tensor]:
            return {"logits": self.inner(pixels)}

    named = [{"pixels": x, "labels": y} for x, y in BATCHES]
    found = iam.HessianOperator(Named(), named, lambda out, y: F.cross_entropy(out["logits"], y))
    assert relative(found @ v, whole) < 1e-12
    residual = iam.ResidualOperator(Named(), named, lambda out, y: F.cross_entropy(out["logits"], y))
    assert relative(residual @ v + iam.FisherOperator(model, X) @ v, whole) < 1e-12
    assert found.loss() == pytest.approx(F.cross_entropy(model(X), Y).item())


@every
def test_a_loader_leaves_the_random_stream(kind: str) -> None:
    """From which it draws a seed."""
    loader, model = DataLoader(TensorDataset(X, Y), batch_size=3, shuffle=True), CASE.model()
    before = torch.get_rng_state()
    if kind == "fisher":
        operator: CurvatureOperator = iam.FisherOperator(model, loader)
    else:
        operator = KINDS[kind](model, loader, F.cross_entropy)
    assert torch.equal(before, torch.get_rng_state())
    operator @ torch.ones(51, dtype=torch.float64)
    assert torch.equal(before, torch.get_rng_state())


@every
def test_inference_mode_is_refused(kind: str) -> None:
    operator = BUILD[kind](CASE, CASE.model())
    v = torch.ones(operator.shape[0], dtype=torch.float64)
    with torch.inference_mode():
        for call in (
            lambda: operator @ v,
            lambda: operator.quadratics(lambda: v),
            lambda: BUILD[kind](CASE, CASE.model()),
        ):
            with pytest.raises(RuntimeError, match=r"inference_mode\(\) rules out"):
                call()
    assert torch.isfinite(operator @ v).all()


def test_sums_are_scaled_for_the_empirical_fisher_too() -> None:
    v = torch.ones(51, dtype=torch.float64)
    mean, total = (
        iam.EmpiricalFisherOperator(CASE.model(), BATCHES, nn.CrossEntropyLoss(reduction=r)) @ v
        for r in ("mean", "sum")
    )
    assert relative(total, mean) < 1e-12


def test_by_name_gives_a_weight_its_part() -> None:
    model = CASE.model()
    operator = iam.FisherOperator(model, X)
    parts = operator.by_name(torch.arange(51.0))
    assert {n: p.shape for n, p in parts.items()} == {n: w.shape for n, w in model.named_parameters()}
    assert torch.equal(torch.cat([part.flatten() for part in parts.values()]), torch.arange(51.0).double())


def test_training_mode_holds_masks_still() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3)).double()
    operator = iam.FisherOperator(model, X, training=True)
    v = torch.ones(operator.shape[0], dtype=torch.float64)
    assert torch.equal(operator @ v, operator @ v)
    assert not torch.allclose(operator @ v, iam.FisherOperator(model, X) @ v)


class Weighted:
    """A mean weighted by class: no mean over examples."""

    def __call__(self, z: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(z, y, weight=torch.tensor([1.0, 5.0, 20.0], dtype=z.dtype))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: iam.HessianOperator(m, [X], F.cross_entropy), TypeError, "Labels are missing"),
        (lambda m: iam.HessianOperator(m, X, F.cross_entropy), TypeError, "Labels are missing"),
        (lambda m: iam.HessianOperator(m, [{"x": X}], F.cross_entropy), TypeError, "keys \\['x'\\]"),
        (lambda m: iam.HessianOperator(m, [], F.cross_entropy), ValueError, "no batch"),
        (lambda m: iam.FisherOperator(m, []), ValueError, "no batch"),
        (
            lambda m: iam.HessianOperator(m, [(X, Y[:3])], F.cross_entropy),
            ValueError,
            "Batch 0 holds 7 examples and 3 labels",
        ),
        (lambda m: iam.HessianOperator(m, BATCHES, Weighted()), ValueError, "neither a mean nor a sum"),
        (
            lambda m: iam.HessianOperator(m, BATCHES, nn.CrossEntropyLoss(reduction="none")),
            ValueError,
            "must return a scalar",
        ),
        (
            lambda m: iam.EmpiricalFisherOperator(m, (X, Y), Weighted()),
            ValueError,
            "neither a mean nor a sum",
        ),
        (lambda m: iam.FisherOperator(m, [X, X * torch.nan]), ValueError, "Batch 1: .*NaN"),
        (lambda m: iam.fisher_lambda_max(m, X, params=[]), ValueError, "No weight may move"),
        (lambda m: iam.top_eigenpairs(iam.FisherOperator(m, X), 52), ValueError, "dimension 51"),
    ],
)
def test_errors(call: Callable[[nn.Module], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(CASE.model())


def test_one_batch_takes_any_criterion() -> None:
    assert float(iam.hessian_lambda_max(CASE.model(), (X, Y), Weighted())) > 0


class Logarithm(nn.Module):
    """NaN for negative inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = CASE.build()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.log())


@pytest.mark.parametrize("kind", ["fisher", "hessian"])
def test_names_the_batch_that_is_not_finite(kind: str) -> None:
    data = [(X[:2].abs(), Y[:2]), (-X[2:].abs(), Y[2:]), (X[:3].abs(), Y[:3])]
    model = Logarithm().double()
    if kind == "fisher":
        operator: CurvatureOperator = iam.FisherOperator(model, data)
    else:
        operator = iam.HessianOperator(model, data, F.cross_entropy)
    drawn = torch.ones(51, dtype=torch.float64)
    with pytest.raises(FloatingPointError, match=r"in batch 1 \(1 of 3 batches\)"):
        operator @ drawn
    with pytest.raises(FloatingPointError, match="in batch 1"):
        operator.quadratics(lambda: drawn)


def test_batch_statistics_are_refused() -> None:
    for model, options, why in (
        (CASES[1].model(), {"training": True}, "'1' \\(BatchNorm2d\\) in training mode"),
        (
            nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)),
            {},
            "without running stat",
        ),
    ):
        with pytest.raises(ValueError, match=why):
            iam.FisherOperator(model, X, **options)
