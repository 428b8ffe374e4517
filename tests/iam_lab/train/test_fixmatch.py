"""FixMatch: its loss, its gradient with every objective, BatchNorm's statistics, and what a step costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tests.iam_lab.train.configs import tiny_fixmatch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import torch_iam as iam
from iam_lab.errors import LabError
from iam_lab.recipes.few_labels import FixMatch as Fields
from iam_lab.train.fixmatch import FixMatch, FixMatchStep, strong_loss
from iam_lab.train.schedule import factor
from iam_lab.train.task import build_task
from iam_lab.train.trainer import Trainer

CPU = torch.device("cpu")
OBJECTIVES: dict[str, dict[str, Any]] = {
    "plain": {"name": "plain"},
    "sam": {"name": "sam", "rho": 0.1},
    "iam-s": {"name": "iam-s", "rho": 0.1, "steps": 1},
    "iam-d": {"name": "iam-d", "rho": 0.1, "beta": 1.0, "steps": 1},
}


def task(objective: str = "iam-d", **changes: Any) -> FixMatch:
    torch.manual_seed(0)
    made = build_task(tiny_fixmatch(objective=OBJECTIVES[objective], **changes), CPU)
    assert isinstance(made, FixMatch)
    made.model.train()
    return made


def test_a_batch_has_labelled_images_and_two_views() -> None:
    (images, (weak, strong)), labels = next(task().batches())
    assert (len(images), len(labels), len(weak), len(strong)) == (6, 6, 12, 12)
    assert not torch.equal(weak, strong)


@pytest.mark.parametrize(("mean_over", "divisor"), [("all", 4), ("chosen", 3)])
def test_the_loss_on_strong_views(mean_over: Any, divisor: int) -> None:
    weak = torch.tensor([[5.0, 0, 0], [0, 5.0, 0], [0.1, 0, 0], [0, 0, 9.0]], requires_grad=True)
    strong = torch.randn(4, 3, requires_grad=True)
    loss, chosen = strong_loss(strong, weak, Fields(mean_over=mean_over))
    by_hand = -strong.log_softmax(1)[[0, 1, 3], [0, 1, 2]].sum() / divisor
    torch.testing.assert_close(loss, by_hand)
    assert float(chosen) == 0.75
    loss.backward()  # type: ignore[no-untyped-call]
    assert weak.grad is None


def test_no_certain_image_gives_no_loss() -> None:
    loss, chosen = strong_loss(torch.randn(3, 5), torch.zeros(3, 5), Fields(mean_over="chosen"))
    assert (float(loss), float(chosen)) == (0.0, 0.0)


def by_hand(twin: FixMatch, batch: Any) -> None:
    """The readable twin: one pass of labelled images and weak views, one of strong views."""
    (images, (weak, strong)), labels = batch
    penalty = iam.InconsistencyPenalty(twin.model, rho=0.1)
    if twin.config.objective.name == "iam-d":
        penalty.maximizer.generator.set_state(twin.objective.state_dict()["maximizer"]["generator"])
    everything = torch.cat([images, weak])
    logits = twin.model(everything)
    loss = twin.criterion(logits[:6], labels)
    if twin.config.objective.name == "iam-d":
        loss = loss + penalty(everything, logits)
    certain, guesses = logits[6:].detach().softmax(1).max(1)
    losses = F.cross_entropy(twin.model(strong), guesses, reduction="none")
    (loss + (losses * (certain >= twin.fields.threshold)).mean()).backward()


@pytest.mark.parametrize("objective", ["plain", "iam-d"])
def test_the_gradient_is_that_of_the_written_out_loss(objective: str) -> None:
    made, twin = task(objective, model__options={}), task(objective, model__options={})
    batch = next(made.batches())
    step = made.backward(batch)
    assert 0 < float(step.chosen) < 1
    by_hand(twin, batch)
    for (name, own), other in zip(made.model.named_parameters(), twin.model.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-3, atol=1e-6, msg=name)


def test_sam_perturbs_the_labelled_loss_alone() -> None:
    made, twin = task("sam", model__options={}), task("sam", model__options={})
    (images, (weak, strong)), labels = batch = next(made.batches())
    made.backward(batch)
    everything, model = torch.cat([images, weak]), twin.model
    weights = list(model.parameters())
    loss = twin.criterion(model(everything)[:6], labels)
    found = torch.autograd.grad(loss, weights)
    length = torch.stack([part.square().sum() for part in found]).sum().sqrt()
    with torch.no_grad():
        weak_logits = model(everything)[6:]
        for weight, part in zip(weights, found, strict=True):
            weight.add_(part, alpha=float(0.1 / length))
    twin.criterion(model(everything)[:6], labels).backward()
    with torch.no_grad():
        for weight, part in zip(weights, found, strict=True):
            weight.sub_(part, alpha=float(0.1 / length))
    strong_loss(model(strong), weak_logits, twin.fields)[0].backward()  # type: ignore[no-untyped-call]
    for own, other in zip(made.model.parameters(), weights, strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_running_statistics_are_those_of_labelled_images_and_weak_views(objective: str) -> None:
    made, twin = task(objective), task("plain")
    (images, (weak, _)), _ = batch = next(made.batches())
    torch.manual_seed(1)  # of Dropout
    made.backward(batch)
    torch.manual_seed(1)
    twin.model(torch.cat([images, weak]))
    state = made.model.state_dict()
    for name, buffer in twin.model.named_buffers():
        assert torch.equal(buffer, state[name]), name


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_perturbed_passes_see_the_batch_of_the_clean_one(objective: str) -> None:
    made = task(objective)
    batch = next(made.batches())
    made.backward(batch)  # whose check passes the clean batch again
    sizes: list[int] = []
    made.model.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    made.backward(batch)
    assert sizes == {"plain": [18, 12], "sam": [18, 18, 12]}.get(objective, [18, 18, 18, 12])


def flops(compute: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        compute()
    return int(counter.get_total_flops())


def test_a_step_costs_what_is_said() -> None:
    """(B + mu B) * 2 + mu B images forward and back, and an ascent step: forward and back of B + mu B."""
    costs = {}
    for objective in ("plain", "sam", "iam-d"):
        made = task(objective)
        batch = next(made.batches())
        made.backward(batch)  # whose check costs a forward pass
        costs[objective] = flops(lambda made=made, batch=batch: made.backward(batch))  # type: ignore[misc]
    model: nn.Module = made.model
    (images, (weak, strong)), _ = batch
    image = images[:2]
    once = flops(lambda: model(image).sum().backward()) / 2  # one image, forward and back
    both, strong_only = len(images) + len(weak), len(strong)
    assert costs["plain"] == once * (both + strong_only)
    assert costs["sam"] == once * (2 * both + strong_only)
    assert costs["iam-d"] == once * (2 * both + strong_only) + once * both


def test_what_is_recorded() -> None:
    made = task()
    batch = next(made.batches())
    step = made.backward(batch)
    assert isinstance(step, FixMatchStep)
    assert step.inconsistency is not None
    expected = step.loss + 1.0 * step.inconsistency + step.unlabelled_loss
    torch.testing.assert_close(step.objective, expected)
    assert set(made.watch(batch, step)) == {"train_error", "train_unlabelled_loss", "train_chosen"}


def test_an_infinite_strong_loss_makes_the_step_not_finite() -> None:
    made = task("plain", fixmatch__threshold=0.0)
    (images, (weak, strong)), labels = next(made.batches())
    step = made.backward(((images, (weak, strong * float("inf"))), labels))
    assert not bool(step.finite)


def test_the_learning_rate_follows_seven_sixteenths_of_a_half_wave() -> None:
    rate = factor(tiny_fixmatch(schedule__warmup_steps=0).schedule, steps=16)
    assert rate(0) == 1.0
    assert rate(8) == pytest.approx(0.7730, abs=1e-4)  # cos(7 pi / 32)
    assert rate(16) == pytest.approx(0.1951, abs=1e-4)  # cos(7 pi / 16)


def radius(made: FixMatch) -> float:
    assert isinstance(made.objective, iam.IAMD)
    return made.objective.ball.rho


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_radius_is_halved_on_time_also_in_a_resumed_run(accumulate: int) -> None:
    options = {"fixmatch__halve_rho_after": 12, "training__accumulate": accumulate}
    made, resumed = task(**options), task(**options)
    batches, seen = made.batches(), []
    for step in range(14):  # an epoch has ten
        if step == 11:
            resumed.load_state_dict(made.state_dict())
        for _ in range(accumulate):
            made.backward(next(batches))
        seen.append(radius(made))
    assert seen == pytest.approx([0.1] * 12 + [0.05] * 2)
    batches = resumed.batches()
    for expected in [0.1, 0.05]:
        for _ in range(accumulate):
            resumed.backward(next(batches))
        assert radius(resumed) == pytest.approx(expected)
    assert radius(resumed) == radius(made)  # to the bit


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fixmatch__threshold": 1.5}, "fixmatch.threshold must be from 0 to 1, found 1.5"),
        (
            {"fixmatch__weight": float("inf")},
            "fixmatch.weight must be a finite number of 0 or more, found inf",
        ),
        ({"fixmatch__halve_rho_after": 0}, "fixmatch.halve_rho_after must be an integer of 1 or more"),
        ({"fixmatch__strong": "strongest"}, "fixmatch.strong: There is no augmentation 'strongest'"),
        ({"objective": "plain", "fixmatch__halve_rho_after": 1}, "'plain' has no radius"),
        ({"semi__labels": None}, "the task 'fixmatch' needs the number of labelled images"),
    ],
    ids=str,
)
def test_what_cannot_be_says_why(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LabError, match=message):
        task(**changes)


def trained(objective: str, **changes: Any) -> Trainer:
    """Four steps of the loop, by a fused optimizer with nesterov momentum, as on a GPU."""
    config = tiny_fixmatch(
        objective=OBJECTIVES[objective],
        model__options={},
        optimizer__options={"momentum": 0.9, "nesterov": True, "fused": True},
        optimizer__decay_norms_and_biases=False,
        training__ema=0.99,
        training__channels_last=True,
        **changes,
    )
    torch.manual_seed(0)
    trainer = Trainer(config, build_task(config, CPU), CPU)
    assert trainer.update.fused
    for _ in range(4):
        trainer.advance()
    trainer.check()
    return trainer


@pytest.mark.parametrize("objective", ["plain", "sam", "iam-d"])
def test_it_trains_compiled_as_it_does_eagerly(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipes of a GPU, but for its graph: compiled, channels last, a fused optimizer, an average."""
    eager = trained(objective)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    compiled = trained(objective, training__compile=True)
    assert compiled.counts()["skipped_steps"] == 0
    own, other = compiled.judged.state_dict(), eager.judged.state_dict()
    torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-5)
    assert compiled.totals.means() == pytest.approx(eager.totals.means(), rel=1e-3)
    low = trained(objective, training__compile=True, training__precision="bf16")
    assert low.counts()["skipped_steps"] == 0
