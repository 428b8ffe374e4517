"""Estimates beside the theory, and what is concluded from them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import torch_iam as iam
from iam_lab.models.mlp import MLP
from iam_lab.report.statistics import mean
from iam_lab.toy.accuracy import Accuracy, accuracy, climbs
from iam_lab.toy.many_starts import projected_ascents
from iam_lab.toy.mixture import Mixture
from iam_lab.toy.network import Training
from iam_lab.toy.result import summary


@pytest.fixture(scope="module")
def toy() -> tuple[MLP, Tensor, Tensor]:
    points, labels = Mixture(count=60).draw()
    return Training(steps=30, sizes=(2, 12, 12, 3)).run(points, labels), points, labels


def test_all_three_agree_where_the_theory_holds(toy: tuple[MLP, Tensor, Tensor]) -> None:
    found = accuracy(*toy, rho=1e-3, steps=60, starts=2, ascent_starts=3, ascent_steps=100)
    assert found.error().value < 1e-3
    assert abs(found.shortfall().value) < 1e-3
    assert min(found.cosines) > 0.999
    assert found.theory == pytest.approx(5e-7 * found.eigenvalues[0])


def test_more_steps_climb_closer(toy: tuple[MLP, Tensor, Tensor]) -> None:
    few, many = (accuracy(*toy, rho=1e-3, steps=k, starts=5, ascent_starts=0) for k in (1, 20))
    assert mean(few.cosines).value < mean(many.cosines).value
    assert few.error().value > 10 * many.error().value
    assert few.projected is None
    with pytest.raises(ValueError, match="not run"):
        few.shortfall()


def test_climbs_hold_every_step(toy: tuple[MLP, Tensor, Tensor]) -> None:
    network, points, _ = toy
    found = climbs(network, points, 1e-3, starts=2, steps=6)
    assert [len(found.power), len(found.power[0])] == [2, 6]
    assert [len(found.projected), len(found.projected[0])] == [2, 6]
    assert all(one == sorted(one) for one in found.projected)
    assert found.power[0][-1] <= found.theory * 1.001


@pytest.mark.parametrize("rho", [1e-3, 0.5])
def test_many_starts_at_once_are_the_same_starts_one_by_one(
    toy: tuple[MLP, Tensor, Tensor], rho: float
) -> None:
    network, points, _ = toy
    together = projected_ascents(network, points, rho, starts=3, steps=25)
    apart = iam.local_inconsistency(network, points, rho, ascent="projected", steps=25, restarts=3)
    torch.testing.assert_close(together, apart.trace, rtol=1e-7, atol=0)


def test_a_summary_is_over_networks() -> None:
    def one(estimates: list[float], projected: float | None) -> Accuracy:
        return Accuracy(0, 0.0, 1.0, [2.0, 1.0, 0.5], 1.0, projected, estimates, [0.9, 1.0])

    found = summary([one([0.9, 1.1], 1.25), one([0.8, 1.0], 1.0)])
    assert found.networks == 2
    assert found.error.value == pytest.approx(0.1)
    assert found.shortfall is not None
    assert found.shortfall.value == pytest.approx((0.2 + 0.1) / 2)
    assert found.cosine.value == pytest.approx(0.95)
    assert found.ratio.value == 0.5
    assert summary([one([1.0], None)]).shortfall is None
