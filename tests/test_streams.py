"""Two streams: no branch reads what the other has not written, and nothing else changes."""

from __future__ import annotations

import pytest
import torch
from tests.cases import CASES, Case, gradient
from tests.objectives.table import RECIPES, Recipe
from tests.oracles.streams import Streams, imagined

import torch_iam as iam
from torch_iam.streams import Fork, second_stream

EVERY = [
    *RECIPES,
    Recipe("iam-d-one-pass", iam.IAMD, {"rho": 0.1, "start": "carry"}),
    Recipe("iam-d-groups", iam.IAMD, {"rho": 0.1, "sub_batch": 4}),
    Recipe("iam-d-output", iam.IAMD, {"rho": 0.1, "output": lambda out: 2 * out}),
    Recipe("iam-d-carry-output", iam.IAMD, {"rho": 0.1, "start": "carry", "output": lambda out: 2 * out}),
    Recipe("iam-s-output", iam.IAMS, {"rho": 0.1, "output": lambda out: 2 * out}),
    Recipe("iam-d-ascent", iam.IAMD, {"rho": 0.1, "sign": "ascent"}),
]
STATEFUL = [case for case in CASES if case.batch_dependent]  # whose passes have most to disturb in each other


def stepped(
    recipe: Recipe, case: Case, monkeypatch: pytest.MonkeyPatch, *, parallel: bool
) -> tuple[torch.Tensor, Streams]:
    """The gradient after two steps, launched as for a graph."""
    monkeypatch.setattr("torch_iam.accumulate.nobody_waits", lambda: True)
    model = case.model()
    more = {"seed": 0} if issubclass(recipe.kind, iam.IAMD | iam.IAMS) else {}
    objective = recipe.objective(model, **more)
    torch.manual_seed(3)
    with imagined(monkeypatch) as streams:
        for _ in range(2):
            if parallel:
                with second_stream("second"):  # type: ignore[arg-type]
                    objective.backward(case.inputs(), case.targets(), case.criterion)
            else:
                objective.backward(case.inputs(), case.targets(), case.criterion)
    return gradient(model), streams


@pytest.mark.parametrize("case", STATEFUL, ids=str)
@pytest.mark.parametrize("recipe", EVERY, ids=str)
def test_no_race_and_the_same_gradient(recipe: Recipe, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    found, streams = stepped(recipe, case, monkeypatch, parallel=True)
    assert streams.races == []
    expected, alone = stepped(recipe, case, monkeypatch, parallel=False)
    assert torch.equal(found, expected)
    assert set(alone.used) == {"first"}
    searches = issubclass(recipe.kind, iam.IAMD | iam.IAMS) and not recipe.options.get("lean")
    assert set(streams.used) == ({"first", "second"} if searches else {"first"})


@pytest.mark.parametrize("event", ["begun", "passed", "settled", "joined"])
def test_every_wait_is_needed(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the oracle sees a race where one of them is left out."""
    wait = Fork._wait
    monkeypatch.setattr(Fork, "_wait", lambda fork, name: None if name == event else wait(fork, name))
    recipe = next(recipe for recipe in EVERY if recipe.name == "iam-d-one-pass")
    _, streams = stepped(recipe, STATEFUL[1], monkeypatch, parallel=True)
    assert streams.races


def test_both_backward_passes_may_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clean one waits for a slope at the logits, and not for the pass through the perturbed network."""
    order: list[str] = []
    wait, mark = Fork._wait, Fork._mark
    monkeypatch.setattr(Fork, "_wait", lambda fork, name: (order.append(f"wait {name}"), wait(fork, name)))
    monkeypatch.setattr(Fork, "_mark", lambda fork, name: (order.append(name), mark(fork, name)))
    stepped(next(r for r in RECIPES if r.name == "iam-d"), STATEFUL[0], monkeypatch, parallel=True)
    step = order[: len(order) // 2]
    assert (
        step.index("settled") < step.index("joined") < step.index("wait settled") < step.index("wait joined")
    )
    assert step.count("wait joined") == 1
