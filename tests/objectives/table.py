"""Every objective and option, with its readable twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from tests.cases import Case
from torch import Tensor, nn

import torch_iam as iam
from torch_iam.objectives import reference

Twin = Callable[[nn.Module, Tensor, Tensor, Any, Tensor], reference.Found]


def movable(model: nn.Module, keep: Callable[[str, nn.Parameter], bool]) -> Tensor:
    """1 for the weights that a filter lets move, 0 for the others."""
    return reference.flat(
        torch.full_like(weight, float(keep(name, weight)))
        for name, weight in model.named_parameters()
        if weight.requires_grad
    )


@dataclass(frozen=True)
class Recipe:
    """An objective as a user writes it, and the twin that it must equal."""

    name: str
    kind: type[iam.Objective]
    options: dict[str, Any] = field(default_factory=dict)
    twin: Twin = reference.plain  # type: ignore[assignment]
    live_graphs: int = 1

    def objective(self, model: nn.Module, **more: Any) -> iam.Objective:
        return self.kind(model, **{"check": False, **self.options, **more})

    def __str__(self) -> str:
        return self.name


def _iam_d(steps: int = 1, **more: Any) -> Twin:
    return lambda m, x, y, c, start: reference.iam_d(m, x, y, c, 0.1, 2.0, start, steps, **more)


def _iam_s(steps: int = 1, **more: Any) -> Twin:
    return lambda m, x, y, c, start: reference.iam_s(m, x, y, c, 0.1, start, steps, **more)


# From the default start the first slope is a difference that rounding leaves eight digits of: too few to compare ten.
S: dict[str, Any] = {"rho": 0.1, "start_norm": 1e-3}
D: dict[str, Any] = {**S, "beta": 2.0}

RECIPES = (
    Recipe("plain", iam.Plain, {}, lambda m, x, y, c, _: reference.plain(m, x, y, c)),
    Recipe("sam", iam.SAM, {"rho": 0.05}, lambda m, x, y, c, _: reference.sam(m, x, y, c, 0.05)),
    Recipe(
        "asam",
        iam.ASAM,
        {"rho": 0.5},
        lambda m, x, y, c, _: reference.sam(m, x, y, c, 0.5, scale=reference.scaling(m, 0.01)),
    ),
    Recipe(
        "sam-matrices",
        iam.SAM,
        {"rho": 0.05, "params": iam.no_norms_and_biases},
        lambda m, x, y, c, _: reference.sam(m, x, y, c, 0.05, movable=movable(m, iam.no_norms_and_biases)),
    ),
    Recipe("iam-s", iam.IAMS, S, _iam_s(1)),
    Recipe("iam-s-3", iam.IAMS, {**S, "steps": 3}, _iam_s(3)),
    Recipe("iam-d", iam.IAMD, D, _iam_d(1)),
    Recipe("iam-d-2", iam.IAMD, {**D, "steps": 2}, _iam_d(2)),
    Recipe("iam-d-5", iam.IAMD, {**D, "steps": 5}, _iam_d(5)),
    Recipe("iam-d-one-sided", iam.IAMD, {**D, "detach_reference": True}, _iam_d(1, detach_reference=True)),
    Recipe("iam-d-lean", iam.IAMD, {**D, "lean": True, "steps": 2}, _iam_d(2)),
    Recipe(
        "iam-d-lean-one-sided",
        iam.IAMD,
        {**D, "lean": True, "detach_reference": True},
        _iam_d(1, detach_reference=True),
    ),
    Recipe(
        "iam-d-adaptive",
        iam.IAMD,
        {**D, "metric": "adaptive", "steps": 2},
        lambda m, x, y, c, s: reference.iam_d(m, x, y, c, 0.1, 2.0, s, 2, scale=reference.scaling(m, 0.01)),
    ),
    Recipe(
        "iam-d-matrices",
        iam.IAMD,
        {**D, "params": iam.no_norms_and_biases},
        lambda m, x, y, c, s: reference.iam_d(
            m, x, y, c, 0.1, 2.0, s, 1, movable=movable(m, iam.no_norms_and_biases)
        ),
    ),
    Recipe("iam-d-fisher", iam.IAMD, {**D, "probe": "fisher", "steps": 2}, _iam_d(2, fisher=True)),
    Recipe("iam-d-worst", iam.IAMD, {**D, "sign": "worst"}, _iam_d(1, worst=True)),
    Recipe("iam-s-part", iam.IAMS, {**S, "batch_fraction": 0.7}, _iam_s(1, seen=6)),
)


def start_of(objective: iam.Objective, model: nn.Module) -> Tensor:
    """The start that the objective is about to draw, as one vector over all trainable weights."""
    vectors = [torch.zeros_like(weight) for weight in model.parameters() if weight.requires_grad]
    maximizer = getattr(objective, "maximizer", None)
    if maximizer is not None:
        generator = torch.Generator()
        generator.set_state(maximizer.generator.get_state())
        drawn = dict(
            zip(
                map(id, maximizer.ball.weights),
                maximizer.ball.draw(generator, maximizer.start_norm),
                strict=True,
            )
        )
        trainable = [weight for weight in model.parameters() if weight.requires_grad]
        vectors = [drawn.get(id(weight), zero) for weight, zero in zip(trainable, vectors, strict=True)]
    return reference.flat(vectors)


def stepped(recipe: Recipe, case: Case, **more: Any) -> tuple[iam.Objective, nn.Module, iam.Step]:
    """One backward of the recipe on the case."""
    model = case.model()
    objective = recipe.objective(model, **more)
    torch.manual_seed(3)
    step = objective.backward(case.inputs(), case.targets(), case.criterion)
    return objective, model, step
