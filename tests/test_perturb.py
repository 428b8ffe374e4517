"""The model at theta + delta, and derivatives along a direction."""

from __future__ import annotations

import pytest
import torch
from tests.cases import CASES, Case
from torch import nn

from torch_iam.perturb import Visit, gradients, owned, unwrapped

EAGER = [case for case in CASES if case.name != "compiled"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_other_weights_other_output_and_back(case: Case) -> None:
    model = case.model()
    visit = Visit(model, case.inputs())
    clean = visit.clean()
    moved = {name: weight.detach() + 0.1 for name, weight in model.named_parameters()}
    with torch.no_grad():
        assert not torch.equal(visit.at(moved), clean)
        assert torch.equal(visit.at({}), clean)
        if case.name != "compiled":
            assert torch.equal(visit.at({}, eager=True), clean)


def test_recurrent_networks_move_too() -> None:
    """Their kernels hold a list of the weights of its own."""
    model = nn.LSTM(3, 4)
    x = torch.randn(5, 2, 3)
    visit = Visit(model, x)
    moved = {name: weight.detach() + 1 for name, weight in model.named_parameters()}
    with torch.no_grad():
        assert not torch.equal(visit.at(moved)[0], visit.clean()[0])


def test_gradients_own_their_storage() -> None:
    case = next(case for case in CASES if case.name == "twin-biases")
    model = case.model()
    found = gradients(model(case.inputs()).square().sum(), list(model.parameters()))
    for gradient in found:
        gradient.mul_(2)  # an expanded tensor would refuse, a shared one would be doubled twice
    single = torch.autograd.grad(model(case.inputs()).square().sum(), list(model.parameters()))
    for a, b in zip(found, single, strict=True):
        assert torch.allclose(a, 2 * b)
    shared = torch.ones(3)
    first, part = owned([shared, shared[:2]])
    assert first is shared
    assert part.data_ptr() != shared.data_ptr()


def test_unwrapped() -> None:
    model = nn.Linear(2, 2)
    assert unwrapped(model) is model
    assert unwrapped(torch.compile(model)) is model  # type: ignore[arg-type]
