"""What a search carries from step to step."""

from __future__ import annotations

import pytest
import torch
from tests.cases import CASES
from torch import nn

import torch_iam as iam
from torch_iam.directions import copy_of
from torch_iam.maximizer import Maximizer
from torch_iam.perturb import Visit

CASE = CASES[0]


def searcher(rho: float = 0.1, **options: object) -> tuple[nn.Module, Maximizer]:
    model = CASE.model()
    return model, Maximizer(iam.Neighborhood(model, rho), seed=0, **options)


def search(model: nn.Module, maximizer: Maximizer) -> list[torch.Tensor]:
    visit = Visit(model, CASE.inputs())
    return maximizer.find(visit, visit.clean()).delta


def test_a_warm_start_climbs_on_from_the_last_direction() -> None:
    """One carried step after another is the power iteration itself, up to the sign."""
    model, warm = searcher(1e-4, start="carry", steps=1)
    _, cold = searcher(1e-4, steps=40)
    for _ in range(40):
        found = search(model, warm)
    expected = search(model, cold)
    cosine = sum((a * b).sum() for a, b in zip(found, expected, strict=True)) / 1e-8
    assert abs(float(cosine)) == pytest.approx(1.0, abs=1e-3)


def test_both_signs_occur() -> None:
    model, maximizer = searcher(start="carry")
    first = copy_of(search(model, maximizer))
    maximizer.remember(first, torch.tensor([True]))
    signs = set()
    for _ in range(20):
        again = maximizer._begin(0)[0]
        cosine = sum((a * b).sum() for a, b in zip(first, again, strict=True)) / 0.01
        assert abs(float(cosine)) == pytest.approx(1.0)
        signs.add(float(cosine) > 0)
    assert signs == {True, False}


def test_states_of_other_objectives_are_refused() -> None:
    model, maximizer = searcher(start="carry", steps=1)
    search(model, maximizer)
    state = maximizer.state_dict()
    other = Maximizer(iam.Neighborhood(model, 0.1, iam.named("0.")), start="carry")
    with pytest.raises(ValueError, match="a direction for 4 weights, this objective moves 2"):
        other.load_state_dict(state)
    wider = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    with pytest.raises(ValueError, match=r"'0.weight' has shape \(6, 4\), the weight \(7, 4\)"):
        Maximizer(iam.Neighborhood(wider, 0.1), start="carry").load_state_dict(state)


def test_the_global_random_stream_is_not_touched() -> None:
    model, maximizer = searcher()
    stream = torch.get_rng_state()
    search(model, maximizer)
    assert torch.equal(stream, torch.get_rng_state())


def test_seeds_follow_torch_unless_given() -> None:
    torch.manual_seed(11)
    ball = iam.Neighborhood(CASE.build(), 0.1)
    torch.manual_seed(11)
    assert Maximizer(ball).generator.initial_seed() == 11
    assert Maximizer(ball, seed=3).generator.initial_seed() == 3
