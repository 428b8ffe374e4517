"""The two pipelines that the documentation shows, run on a little of their data."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import torch_iam as iam

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(params=["fixmatch", "simclr"])
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(str(DOCS / "examples"))  # type: ignore[no-untyped-call]
    return importlib.import_module(request.param)


def trained(example: ModuleType, beta: float, batches: int = 2) -> dict[str, Tensor]:
    torch.manual_seed(0)
    views = [torch.randn(batches, size, 1, 8, 8) for size in (4, 6, 6)]
    model = example.network(outputs=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if example.__name__ == "fixmatch":
        loader: Any = [(x, torch.arange(4), weak, strong) for x, weak, strong in zip(*views, strict=True)]
    else:
        loader = list(zip(views[1], views[2], strict=True))
    example.train(model, loader, optimizer, beta=beta)
    return dict(model.state_dict())


def test_it_learns(example: ModuleType) -> None:
    assert example.main(steps=60) < 45  # chance is 90; a few seconds are not for more


def test_the_penalty_changes_weights_and_no_count_of_batchnorm(example: ModuleType) -> None:
    without, with_it = trained(example, beta=0.0), trained(example, beta=1.0)
    assert not torch.equal(without["9.weight"], with_it["9.weight"])
    passes = 2 if example.__name__ == "fixmatch" else 1
    assert int(without["1.num_batches_tracked"]) == int(with_it["1.num_batches_tracked"]) == 2 * passes


@pytest.mark.parametrize("example", ["simclr"], indirect=True)
def test_a_step_is_that_of_the_objective(example: ModuleType) -> None:
    """SimCLR's loss as a criterion of IAM-D: the same step."""
    with_penalty = trained(example, beta=1.0, batches=1)
    torch.manual_seed(0)
    views = [torch.randn(1, size, 1, 8, 8) for size in (4, 6, 6)]
    model = example.network(outputs=10).train()
    objective = iam.IAMD(model, rho=0.1, beta=1.0, divergence=iam.SimilarityKL(0.5))

    def criterion(z: Tensor, partner: Tensor) -> Tensor:
        unit = torch.nn.functional.normalize(z, dim=1)
        similarity = (unit @ unit.T / 0.5).masked_fill(torch.eye(len(z), dtype=torch.bool), -torch.inf)
        return torch.nn.functional.cross_entropy(similarity, partner)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    objective.backward(torch.cat([views[1][0], views[2][0]]), torch.arange(12).roll(6), criterion)
    optimizer.step()
    torch.testing.assert_close(dict(model.state_dict()), with_penalty, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("example", ["fixmatch"], indirect=True)
def test_a_step_costs_what_the_page_says(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images forward and back: of 4 with a label, 6 weak and 6 strong views, and twice the first ten again."""
    once = flops(lambda: example.network(outputs=10)(torch.randn(2, 1, 8, 8)).sum().backward()) / 2

    def step() -> int:
        """The third one: the first is checked, at the cost of a pass."""
        return flops(lambda: trained(example, 1.0, batches=3)) - flops(
            lambda: trained(example, 1.0, batches=2)
        )

    assert step() == once * (4 + 6 + 6 + 2 * (4 + 6))
    monkeypatch.setattr(iam, "InconsistencyPenalty", lambda *_, **__: lambda _, logits: logits.new_zeros(()))
    assert step() == once * (4 + 6 + 6)


@pytest.mark.parametrize("path", ["README.md", "docs/lab.md"])
def test_what_is_read_first_leads_to_the_page(path: str) -> None:
    text = (DOCS.parent / path).read_text(encoding="utf-8")
    assert "FixMatch" in text
    assert "SimCLR" in text
    assert "pipelines.md)" in text


def flops(compute: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        compute()
    return int(counter.get_total_flops())


def test_the_page_shows_them_and_points_at_the_penalty(example: ModuleType) -> None:
    page = (DOCS / "pipelines.md").read_text(encoding="utf-8")
    assert f"{{literalinclude}} examples/{example.__name__}.py\n:pyobject: train\n" in page
    lines = inspect.getsource(example.train).splitlines()
    assert len(lines) <= 22
    emphasized = page.split(f"examples/{example.__name__}.py\n:pyobject")[1].split(":emphasize-lines: ")[1]
    shown = [lines[int(number) - 1] for number in emphasized.split("\n")[0].split(",")]
    assert "iam.InconsistencyPenalty(" in shown[0]
    assert "+ beta * penalty(" in shown[1]
