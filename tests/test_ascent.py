"""N1: the inner maximisation against the Fisher matrix, built densely."""

from __future__ import annotations

import math

import pytest
import torch
from tests.cases import CASES, Case, relative
from tests.oracles import dense
from torch import Tensor, nn

import torch_iam as iam
from torch_iam.ascent import ExpectedDivergence, power_iteration, projected_ascent
from torch_iam.inputs import logits_of
from torch_iam.objectives.reference import flat
from torch_iam.perturb import Visit, unwrapped

EAGER = [case for case in CASES if case.name != "compiled"]


def landscape(case: Case, pieces: int = 1) -> tuple[nn.Module, ExpectedDivergence]:
    model = case.model().eval()
    visits = []
    with torch.no_grad():
        for part in case.inputs(12).chunk(pieces):
            visit = Visit(model, part, leave_trace=False)
            visits.append((visit, visit.clean()))
    ball = iam.Neighborhood(model, rho=1e-3)
    return model, ExpectedDivergence(ball, iam.CategoricalKL(), logits_of, visits)


def draw(ball: iam.Neighborhood, norm: float) -> list[Tensor]:
    return ball.draw(torch.Generator().manual_seed(0), norm)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_small_radius_gives_half_rho_squared_times_the_top_eigenvalue(case: Case) -> None:
    model = case.model().eval()
    x = case.inputs(12)
    top = float(torch.linalg.eigvalsh(dense.fisher(unwrapped(model), x))[-1])
    for rho, tolerance in ((1e-3, 1e-3), (1e-4, 1e-4)):
        estimate = iam.local_inconsistency(model, x, rho=rho, steps=300, restarts=2)
        assert estimate.best / (0.5 * rho**2 * top) == pytest.approx(1.0, abs=tolerance)


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("case", EAGER, ids=str)
def test_fisher_products_are_those_of_the_dense_matrix(case: Case, pieces: int) -> None:
    model, field = landscape(case, pieces)
    matrix = dense.fisher(model, case.inputs(12))
    delta = draw(field.ball, 1.0)
    value, product = field.fisher(delta)
    assert relative(flat(product), matrix @ flat(delta)) < 1e-10
    assert float(value) == pytest.approx(float(flat(delta) @ matrix @ flat(delta)) / 2, rel=1e-10)


@pytest.mark.parametrize("case", EAGER, ids=str)
def test_the_slope_near_zero_is_the_fisher_product(case: Case) -> None:
    _, field = landscape(case)
    _, product = field.fisher(draw(field.ball, 1e-5))
    _, slope = field.slope(draw(field.ball, 1e-5))
    assert relative(flat(slope), flat(product)) < 1e-3


@pytest.mark.parametrize("case", EAGER, ids=str)
def test_batches_have_the_slope_of_the_whole(case: Case) -> None:
    whole, parts = (landscape(case, pieces)[1] for pieces in (1, 5))
    for function in ("slope", "fisher"):
        (a, g), (b, h) = (getattr(field, function)(draw(field.ball, 0.5)) for field in (whole, parts))
        assert float(a) == pytest.approx(float(b), rel=1e-10)
        assert relative(flat(g), flat(h)) < 1e-10


def test_power_iteration_on_a_quadratic_finds_the_top_eigenvector() -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 1, bias=False).double()
    basis, _ = torch.linalg.qr(torch.randn(6, 6).double())
    matrix = basis @ torch.diag(torch.tensor([1.0, 2, 3, 4, 5, 10]).double()) @ basis.T
    ball = iam.Neighborhood(model, rho=0.5)

    def slope(delta: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        product = delta[0] @ matrix
        return (delta[0] * product).sum() / 2, [product]

    climb = power_iteration(ball, slope, draw(ball, 1.0), 60)
    assert float(climb.delta[0].flatten() @ basis[:, -1]) ** 2 == pytest.approx(0.25, rel=1e-9)
    assert len(climb.values) == 60
    check = projected_ascent(ball, slope, draw(ball, 0.5), 200)
    assert float(max(check.values)) == pytest.approx(0.5 * 0.25 * 10, rel=1e-3)


def test_projected_ascent_stays_inside_and_keeps_the_best() -> None:
    _, field = landscape(CASES[0])
    start = field.ball.resized(draw(field.ball, 1.0))
    climb = projected_ascent(field.ball, field.slope, start, 40)
    assert float(field.ball.lengths(climb.delta)) <= field.ball.rho * (1 + 1e-12)
    assert float(field.value(climb.delta)) == pytest.approx(max(map(float, climb.values)), rel=1e-9)


def test_projected_ascent_without_a_slope_finds_nothing() -> None:
    _, field = landscape(CASES[0])
    start = field.ball.resized(draw(field.ball, 1.0))

    def flat_slope(delta: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        return torch.tensor(1.0), [torch.full_like(part, torch.nan) for part in delta]

    climb = projected_ascent(field.ball, flat_slope, start, 3)
    assert not bool(climb.ok.any())
    assert all(not bool(part.any()) for part in climb.delta)


def test_with_fisher_probe_no_start_scale_matters() -> None:
    case = CASES[0]
    model = case.model()
    values = [
        iam.local_inconsistency(model, case.inputs(), rho=0.1, probe="fisher", start_norm=norm).value
        for norm in (1e-150, None, 1e50)
    ]
    assert values[1:] == pytest.approx(values[:1] * 2, rel=1e-6)


def test_single_precision_starts_where_rounding_does_not_decide() -> None:
    """The default start gives, in float32, the direction that float64 gives; a far smaller one does not."""
    case = CASES[2]
    directions = {}
    for dtype, norm in ((torch.float64, None), (torch.float32, None), (torch.float32, 1e-8)):
        model = case.model().to(dtype).eval()
        x = case.inputs(64).to(dtype)
        visit = Visit(model, x, leave_trace=False)
        with torch.no_grad():
            clean = visit.clean()
        ball = iam.Neighborhood(model, 0.1)
        field = ExpectedDivergence(ball, iam.CategoricalKL(), logits_of, [(visit, clean)])
        generator = torch.Generator().manual_seed(0)
        unit = [torch.randn(w.shape, generator=generator, dtype=torch.float64) for w in ball.weights]
        scale = (norm or float(ball.start_norm(ball.groups[0]))) / float(flat(unit).norm())
        climb = power_iteration(ball, field.slope, [(scale * u).to(dtype) for u in unit], 1)
        directions[dtype, norm] = flat(climb.delta).double() / 0.1
    exact = directions[torch.float64, None]
    cosine = {key: float(exact @ found) for key, found in directions.items()}
    assert cosine[torch.float32, None] > 0.999
    assert cosine[torch.float32, 1e-8] < 0.9
    assert not math.isnan(cosine[torch.float32, 1e-8])


@pytest.mark.parametrize("probe", ["divergence", "fisher"])
@pytest.mark.parametrize("pieces", [1, 2])
def test_float16_loses_no_direction_in_a_mean_over_many_positions(pieces: int, probe: str) -> None:
    """A position's share of the slope is below the smallest number of float16: 2 ** 19 positions, 4 classes."""
    found = []
    for dtype in (torch.float32, torch.float16):
        torch.manual_seed(0)
        model = nn.Conv2d(3, 4, 1).to(dtype)
        x = torch.randn(8, 3, 256, 256).to(dtype)
        estimate = iam.local_inconsistency(
            model, list(x.chunk(pieces)), rho=0.1, steps=5, restarts=1, probe=probe
        )
        found.append(flat(estimate.direction.values()).float())
    assert float(torch.cosine_similarity(*found, dim=0)) > 0.99
