"""A captured step gives the weights of eager steps; on a CPU it is the eager step."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from tests.objectives.table import RECIPES, Recipe
from torch import nn
from torch.nn import functional as F

import torch_iam as iam
from torch_iam.capture import CapturedStep

EVERY = [*RECIPES, Recipe("iam-d-one-pass", iam.IAMD, {"rho": 0.1, "start": "carry"})]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
WAYS = [("cpu", False), *[("cuda", overlap) for overlap in (True, False) if "cuda" in DEVICES]]


def network(device: str) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    return model.double().to(device)


def batches(device: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (
            torch.randn(8, 1, 6, 6, generator=generator).double().to(device),
            torch.randint(0, 3, (8,), generator=generator).to(device),
        )
        for _ in range(20)
    ]


def optimizer_of(model: nn.Module, device: str) -> torch.optim.Optimizer:
    fused: dict[str, Any] = {"fused": True} if device == "cuda" else {}
    return torch.optim.SGD(model.parameters(), lr=torch.tensor(0.05, device=device), momentum=0.9, **fused)


@pytest.mark.parametrize("inside", [True, False], ids=["optimizer inside", "optimizer outside"])
@pytest.mark.parametrize("recipe", EVERY, ids=str)
@pytest.mark.parametrize(("device", "overlap"), WAYS)
def test_graph_and_eager_give_the_same_weights_over_20_steps(
    device: str, overlap: bool, recipe: Recipe, inside: bool
) -> None:
    eager, captured = network(device), network(device)
    steps = batches(device)
    objective, optimizer = recipe.objective(eager, **_seed(recipe)), optimizer_of(eager, device)
    for x, y in steps:
        optimizer.zero_grad()
        objective.backward(x, y, F.cross_entropy)
        optimizer.step()

    optimizer = optimizer_of(captured, device)
    step = iam.capture(
        recipe.objective(captured, **_seed(recipe)),
        F.cross_entropy,
        optimizer=optimizer if inside else None,
        overlap=overlap,
    )
    for x, y in steps:
        found = step(x, y)
        if not inside:
            optimizer.step()
    assert bool(found.finite)
    for (name, a), b in zip(eager.state_dict().items(), captured.state_dict().values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize("device", DEVICES)
def test_unlabelled_inputs(device: str) -> None:
    model = network(device)
    (x, y), (more, _) = batches(device)[:2]
    step = iam.capture(iam.IAMD(model), F.cross_entropy)
    assert step(x, y, more).outputs.shape == (16, 3)


@pytest.mark.parametrize("device", DEVICES)
def test_any_work_can_be_captured(device: str) -> None:
    """A second backward beside the objective's, on a nested batch, as in FixMatch."""
    eager, captured = network(device), network(device)
    steps = batches(device)

    def work(objective: iam.Objective, batch: Any) -> iam.Step:
        (x, more), y = batch
        step = objective.backward(x, y, F.cross_entropy, more)
        (0.1 * objective.model(more).square().mean()).backward()
        return step

    ends = []
    for model, capturing in ((eager, False), (captured, True)):
        objective, optimizer = iam.IAMD(model, seed=0), optimizer_of(model, device)

        def step(batch: Any, objective: Any = objective, optimizer: Any = optimizer) -> iam.Step:
            optimizer.zero_grad()
            found = work(objective, batch)
            optimizer.step()
            return found

        if capturing:
            step = CapturedStep(partial(work, objective), objective, optimizer)
        for (x, y), (more, _) in zip(steps[:10], steps[10:], strict=True):
            ends.append(float(step(((x, more), y)).objective))
    assert ends[:10] == pytest.approx(ends[10:], rel=1e-9)
    for (name, a), b in zip(eager.state_dict().items(), captured.state_dict().values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-12), name


def _seed(recipe: Recipe) -> dict[str, Any]:
    return {"seed": 0} if issubclass(recipe.kind, iam.IAMD | iam.IAMS) else {}
