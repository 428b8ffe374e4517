"""Activation checkpointing runs parts of a pass again in its backward: at the weights of that pass."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.cases import DropPath, gradient, relative
from tests.objectives.table import RECIPES, Recipe
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import torch_iam as iam

IAM: dict[str, object] = {"rho": 0.3, "beta": 2.0}
EVERY = [
    *RECIPES,
    Recipe("iam-d-one-pass", iam.IAMD, {**IAM, "start": "carry"}),
    Recipe("iam-d-one-pass-lean", iam.IAMD, {**IAM, "start": "carry", "lean": True}),
    *[Recipe(f"iam-d-{sign}", iam.IAMD, {**IAM, "sign": sign}) for sign in ("worst", "ascent")],
    Recipe("iam-s-ascent", iam.IAMS, {"rho": 0.3, "sign": "ascent"}),
    Recipe("iam-d-fisher", iam.IAMD, {**IAM, "probe": "fisher"}),
    Recipe("iam-d-half", iam.IAMD, {**IAM, "batch_fraction": 0.5}),
    Recipe("iam-d-sub-batches", iam.IAMD, {**IAM, "sub_batch": 4}),
]


class Blocks(nn.Module):
    """Residual blocks with BatchNorm, dropout and stochastic depth, run again in the backward if asked."""

    def __init__(self, again: bool, reentrant: bool = False) -> None:
        super().__init__()
        self.again, self.reentrant = again, reentrant
        self.stem = nn.Linear(4, 6)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.2), DropPath(0.2))
            for _ in range(2)
        )
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for block in self.blocks:
            h = h + (checkpoint(block, h, use_reentrant=self.reentrant) if self.again else block(h))
        return self.head(h)


def batch(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8, 4, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 3, (8,), generator=generator)


def network(again: bool, reentrant: bool = False) -> nn.Module:
    torch.manual_seed(0)
    return Blocks(again, reentrant).double().train()


@pytest.mark.parametrize("recipe", EVERY, ids=str)
def test_gradients_are_those_without_it(recipe: Recipe) -> None:
    models = [network(again) for again in (False, True)]
    objectives = [recipe.objective(model, **_seed(recipe)) for model in models]
    for t in range(3):  # a carried direction is used from the second step on
        x, y = batch(t)
        for model, objective in zip(models, objectives, strict=True):
            model.zero_grad()
            torch.manual_seed(t)
            objective.backward(x, y, F.cross_entropy)
        assert relative(gradient(models[1]), gradient(models[0])) < 1e-10


@pytest.mark.parametrize("recipe", EVERY, ids=str)
def test_perturbed_passes_leave_no_trace_when_run_again(recipe: Recipe) -> None:
    """The clean pass is run again by a plain step too, and BatchNorm sees it twice; more often it may not."""
    model, plain = network(True), network(True)
    x, y = batch(0)
    objective = recipe.objective(model, **_seed(recipe))
    reference = iam.Plain(plain, sub_batch=recipe.options.get("sub_batch"), check=False)
    torch.manual_seed(0)
    objective.backward(x, y, F.cross_entropy)
    stream = torch.get_rng_state()
    torch.manual_seed(0)
    if recipe.kind is iam.IAMS or recipe.options.get("lean"):
        plain(x)  # their clean pass has no backward of its own
    else:
        reference.backward(x, y, F.cross_entropy)
    assert torch.equal(stream, torch.get_rng_state())
    for (name, found), expected in zip(model.named_buffers(), plain.buffers(), strict=True):
        assert torch.equal(found, expected), name


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # in a clean pass without a graph
@pytest.mark.parametrize("recipe", [r for r in EVERY if r.kind is not iam.Plain], ids=str)
def test_the_reentrant_kind_is_refused(recipe: Recipe) -> None:
    model = network(True, reentrant=True)
    before = copy.deepcopy(model.state_dict())
    x, y = batch(0)
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        recipe.objective(model).backward(x, y, F.cross_entropy)
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())


def test_a_penalty_refuses_what_would_run_again_at_other_weights() -> None:
    x, y = batch(0)
    model = network(True)
    penalty = iam.InconsistencyPenalty(model, rho=0.1)
    logits = model(x)
    with pytest.raises(RuntimeError, match=r"checkpointing.*IAMD"):
        F.cross_entropy(logits, y) + penalty(x, logits)
    model = network(False)
    penalty = iam.InconsistencyPenalty(model, rho=0.1)
    penalty(x, model(x)).backward()


def _seed(recipe: Recipe) -> dict[str, object]:
    return {"seed": 0} if recipe.kind in (iam.IAMD, iam.IAMS) else {}
