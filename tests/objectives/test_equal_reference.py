"""N2 and N5: every objective equals its readable twin, gradients and buffers included."""

from __future__ import annotations

import pytest
import torch
from tests.cases import CASES, Case, gradient, relative
from tests.objectives.table import RECIPES, Recipe, start_of

import torch_iam as iam
from torch_iam.objectives import reference
from torch_iam.perturb import unwrapped


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_equals_twin(recipe: Recipe, case: Case) -> None:
    model = case.model()
    objective = recipe.objective(model)
    start = start_of(objective, model)
    twin = unwrapped(case.model())
    torch.manual_seed(3)
    expected = recipe.twin(twin, case.inputs(), case.targets(), case.criterion, start)
    torch.manual_seed(3)
    step = objective.backward(case.inputs(), case.targets(), case.criterion)
    assert relative(gradient(model), expected.gradient) < 1e-10
    for name in ("loss", "objective", "inconsistency"):
        found, wanted = getattr(step, name), getattr(expected, name)
        assert (found is None) == (wanted is None), name
        assert found is None or float(found) == pytest.approx(float(wanted.detach()), rel=1e-9), name
    for (name, found), wanted in zip(model.named_buffers(), expected.model.buffers(), strict=True):
        assert torch.equal(found, wanted), name
    assert bool(step.finite)
    assert bool(step.perturbed)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("lean", [False, True])
def test_one_pass_carries_the_gradient_of_the_step_before(case: Case, lean: bool) -> None:
    """Step 1 climbs once; step 2 uses the gradient of S at theta + delta of step 1, with a random sign."""
    model = case.model()
    objective = iam.IAMD(model, rho=0.1, beta=2.0, start="carry", lean=lean, start_norm=0.01, check=False)
    twin = unwrapped(case.model())
    x, y = case.inputs(), case.targets()

    world = reference.World(twin)
    start = start_of(objective, model)
    torch.manual_seed(3)
    first = reference.iam_d(twin, x, y, case.criterion, 0.1, 2.0, start, steps=1)
    torch.manual_seed(3)
    world = reference.World(twin)
    delta = reference.ascent(world, x, start, 0.1, 1)
    carried = reference.ascent(world, x, delta, 0.1, 1)

    torch.manual_seed(3)
    objective.backward(x, y, case.criterion)
    assert relative(gradient(model), first.gradient) < 1e-10

    model.zero_grad()
    torch.manual_seed(4)
    objective.backward(x, y, case.criterion)
    candidates = []
    for sign in (1.0, -1.0):
        torch.manual_seed(4)
        second = reference.iam_d(first.model, x, y, case.criterion, 0.1, 2.0, sign * carried, steps=0)
        candidates.append(relative(gradient(model), second.gradient))
    assert min(candidates) < 1e-10


@pytest.mark.parametrize("kind", [iam.IAMD, iam.IAMS])
def test_unlabelled_inputs_count_for_the_inconsistency_alone(kind: type[iam.IAMD]) -> None:
    case = CASES[1]
    model, x, y = case.model(), case.inputs(8), case.targets(3)
    objective = kind(model, rho=0.1, check=False)
    start = start_of(objective, model)
    if kind is iam.IAMD:
        expected = reference.iam_d(case.model(), x, y, case.criterion, 0.1, 1.0, start)
    else:
        expected = reference.iam_s(case.model(), x, y, case.criterion, 0.1, start)
    step = objective.backward(x[:3], y, case.criterion, unlabeled=x[3:])
    assert relative(gradient(model), expected.gradient) < 1e-10
    assert float(step.inconsistency) == pytest.approx(float(expected.inconsistency.detach()), rel=1e-8)
    assert step.outputs.shape == (8, 3)


def test_plain_is_backward() -> None:
    for case in CASES:
        model, other = case.model(), case.model()
        torch.manual_seed(5)
        iam.Plain(model, check=False).backward(case.inputs(), case.targets(), case.criterion)
        after = torch.get_rng_state()
        torch.manual_seed(5)
        case.criterion(other(case.inputs()), case.targets()).backward()
        assert torch.equal(gradient(model), gradient(other))
        assert torch.equal(after, torch.get_rng_state())


def test_the_two_sides_of_the_gradient_differ() -> None:
    """The released code leaves the clean side out: that is another gradient, not a rounding."""
    case = CASES[0]
    grads = []
    for detach in (False, True):
        model = case.model()
        objective = iam.IAMD(model, rho=1e-3, beta=1e4, detach_reference=detach, check=False, seed=0)
        objective.backward(case.inputs(), case.targets(), case.criterion)
        grads.append(gradient(model))
    assert relative(grads[0], grads[1]) > 0.1
