"""The model at theta + delta, and derivatives along a direction."""

from __future__ import annotations

import contextlib
import linecache
import sys
from typing import Any

import pytest
import torch
from tests.cases import CASES, Case
from torch import nn

from torch_iam import guards, perturb
from torch_iam.perturb import Visit, gradients, owned, unwrapped


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


def test_an_interrupt_at_any_line_of_a_pass_leaves_nothing_behind() -> None:
    """Also before anybody lets go of the exception, which holds on to every frame that it came through."""
    case = next(case for case in CASES if case.name == "convolution")
    model = case.model()
    visit = Visit(model, case.inputs())
    moved = {name: weight.detach() + 0.1 for name, weight in model.named_parameters()}
    before = [id(tensor) for tensor in (*model.parameters(), *model.buffers())]
    watched = {module.__file__ for module in (perturb, guards, contextlib)}
    reached, stop_at = 0, 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal reached
        if frame.f_code.co_filename not in watched:
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        # The last is called twice for that reason; at a bare "try:" there is nothing to interrupt.
        if event == "line" and line != "try:" and frame.f_code.co_name != "restore":
            reached += 1
            if reached == stop_at:
                raise KeyboardInterrupt
        return trace

    for stop_at in range(1, 1000):
        reached = 0
        sys.settrace(trace)
        try:
            visit.at(moved)
            sys.settrace(None)
            break
        except KeyboardInterrupt:
            sys.settrace(None)
            assert [id(tensor) for tensor in (*model.parameters(), *model.buffers())] == before, stop_at
    assert stop_at > 50


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
