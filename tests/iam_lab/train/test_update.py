"""Steps that are not finite leave no trace; fused or not, scaled or not, the step is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.iam_lab.train.configs import tiny
from torch import nn

from iam_lab.errors import RecipeError, RunError
from iam_lab.recipes.schema import Config, Optimizer, Schedule, Training
from iam_lab.runs.folder import RunFolder
from iam_lab.train.average import Average
from iam_lab.train.numerics import device_of
from iam_lab.train.optimizers import build_optimizer
from iam_lab.train.run import train
from iam_lab.train.schedule import TorchRates, build_rates, factor
from iam_lab.train.supervised import Supervised
from iam_lab.train.trainer import Trainer
from iam_lab.train.update import Update

CPU = torch.device("cpu")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def loss_of(model: nn.Module, bad: bool) -> torch.Tensor:
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))
    x[0, 0] = float("inf") if bad else 0.0
    return model(x).square().mean()


@pytest.mark.parametrize("kind", ["SGD", "SGD fused", "AdamW", "AdamW fused", "fp16"])
def test_a_step_that_is_not_finite_leaves_no_trace(kind: str) -> None:
    """A bad step before or between good ones: as if it had not been."""
    results = []
    for pattern in ((False, False), (False, True, False), (True, False, True, False)):
        model = network()
        name = "SGD" if kind == "fp16" else kind.split()[0]
        options = {"momentum": 0.9} if name == "SGD" else {}
        options |= {"fused": True} if kind.endswith("fused") else {}
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1, **options)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0) if kind == "fp16" else None
        update = Update(model, optimizer, scaler=scaler)
        assert update.fused == kind.endswith("fused")
        for bad in pattern:
            update.remember()
            loss = loss_of(model, bad)
            (scaler.scale(loss) if scaler else loss).backward()
            update.step()
        assert int(update.skipped) == sum(pattern)
        assert int(update.run) == 0
        results.append(
            [tensor.clone() for tensor in model.state_dict().values() if tensor.is_floating_point()]
        )
    for one, two, three in zip(*results, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


def test_a_run_of_bad_steps_is_counted() -> None:
    model = network()
    update = Update(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for bad in (False, True, True, True):
        update.remember()
        loss_of(model, bad).backward()
        update.step()
    assert int(update.run) == int(update.skipped) == 3


@pytest.mark.parametrize("fused", [False, True])
def test_clipping_is_torchs(fused: bool) -> None:
    ours, theirs = network(), network()
    update = Update(ours, torch.optim.SGD(ours.parameters(), lr=0.1, fused=fused), clip_norm=0.01)
    update.remember()
    loss_of(ours, False).backward()
    update.step()
    loss_of(theirs, False).backward()
    norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.01)
    torch.optim.SGD(theirs.parameters(), lr=0.1).step()
    assert torch.allclose(update.norm, norm)
    for one, two in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(one, two, rtol=1e-4, atol=1e-8)


def test_the_average_is_torchs() -> None:
    model = network()
    ours = Average(model, decay=0.9)
    theirs = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    theirs.update_parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss_of(model, False).backward()
        optimizer.step()
        ours.update()
        theirs.update_parameters(model)
    for one, two in zip(ours.model.parameters(), theirs.module.parameters(), strict=True):
        assert torch.allclose(one, two)


@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [
        (
            Schedule("multistep", milestones=(0.3, 0.6, 0.8), gamma=0.2),
            lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [60, 120, 160], 0.2),
        ),
        (Schedule("cosine"), lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 200)),
        (Schedule("linear"), lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.0, 200)),
    ],
)
def test_schedules_are_torchs(schedule: Schedule, theirs: object) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    expected = theirs(optimizer)  # type: ignore[operator]
    ours = factor(schedule, 200)
    for step in range(200):
        assert ours(step) == pytest.approx(optimizer.param_groups[0]["lr"] / 0.1, abs=1e-9)
        optimizer.step()
        expected.step()


def test_a_rate_that_is_a_tensor_is_written_in_place() -> None:
    rate = torch.tensor(0.1)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=rate)
    held = optimizer.param_groups[0]["lr"]
    build_rates(Schedule("linear"), optimizer, steps=10, steps_per_epoch=1).set(5)
    assert optimizer.param_groups[0]["lr"] is held
    assert float(held) == pytest.approx(0.05)


def test_norms_and_biases_may_be_left_out_of_the_decay() -> None:
    optimizer = build_optimizer(network(), Optimizer(decay_norms_and_biases=False), Training())
    decays = [(group["weight_decay"], len(group["params"])) for group in optimizer.param_groups]
    assert decays == [(5e-4, 2), (0.0, 4)]


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (Optimizer("Sgd"), "Did you mean 'SGD'"),
        (Optimizer("LBFGS"), "needs a closure"),
        (Optimizer(options={"momentun": 0.9}), "SGD has no 'momentun'; it has momentum"),
        (Optimizer(lr=-1.0), "optimizer: Invalid learning rate"),
        (Optimizer("Adadelta", options={"rho": 2.0}), "optimizer: Invalid rho"),
        (Optimizer(options={"momentum": "abc"}), "optimizer.options momentum='abc': '<' not supported"),
    ],
)
def test_optimizers_that_cannot_be(optimizer: Optimizer, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        build_optimizer(network(), optimizer, Training())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__name": "wrn-16"}, "model: There is no model 'wrn-16'"),
        ({"model__options": {"width": "wide"}}, "model.options width='wide'"),
        ({"model__name": "mlp", "model__options": {"hidden": "abc"}}, "model.options hidden='abc': "),
        (
            {"schedule__name": "OneCycleLR", "schedule__options": {"max_lr": 0.1, "total_steps": 5}},
            "schedule.options: OneCycleLR ends after 5 steps, and is to make 11, .* write total_steps=12",
        ),
        ({"data__image_size": 0}, "data.image_size must be an integer of 1 or more"),
        ({"data__train_images": 10**6}, "data.train_images must be from 1 to"),
        ({"data__augment": "flipp"}, "data.augment: There is no augmentation"),
        ({"data__validation": 1.5}, "data.validation must be a share of 0 or more and below 1, found 1.5"),
        ({"objective__sub_batch": 5}, "sub_batch must divide"),
        ({"objective__options": {"start": "carried"}}, "objective: start must be one of"),
        ({"objective__rho": -1.0}, "objective.rho must be a finite number above 0, found -1.0"),
        ({"schedule__name": "cosin"}, "schedule.name must be one of"),
        ({"schedule__name": "ReduceLROnPlateau"}, "follows a metric"),
        ({"training__accumulate": 5}, "training.accumulate must divide the batch of 24"),
        (
            {"training__batch_size": 100},
            "^training.batch_size: .* 72 images to train on, .* one batch of 100. Choose at most 72",
        ),
        (
            {"training__batch_size": 200, "training__accumulate": 2},
            "do not fill one batch of 100. Choose at most 144",
        ),
        ({"training__batch_size": 0}, "training.batch_size must be an integer of 1 or more, found 0"),
        ({"evaluation__batch_size": 0}, "evaluation.batch_size must be an integer of 1 or more, found 0"),
        ({"measurement__batch_size": -5}, "measurement.batch_size must be an integer of 1 or more, found -5"),
        ({"training__ema": 2.0}, "training.ema must be a share of 0 or more and below 1, found 2.0"),
        ({"training__epochs": 0}, "training.epochs must be an integer of 1 or more, found 0"),
        ({"measurement__split": "validation", "data__validation": 0.0}, "There are no validation images"),
    ],
)
def test_recipes_that_cannot_be(changes: dict[str, object], message: str) -> None:
    """The error comes before or with the first step, and names the field."""
    from iam_lab.data import DataError

    config = tiny(**changes)
    if "objective__sub_batch" in changes:
        config = replace(config, objective=replace(config.objective, options={}))
    with pytest.raises((RecipeError, DataError, ValueError), match=message):
        attempt(config)


def attempt(config: Config) -> None:
    task = Supervised(config, CPU)
    trainer = Trainer(config, task, CPU)
    trainer.advance()
    task.measure(task.model, lambda: None)


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_scheduler_of_torch_that_fails_on_the_way_is_named(epochs: int) -> None:
    """With one epoch it is never asked for the step that it cannot make."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = Schedule("CosineAnnealingWarmRestarts", options={"T_0": 1, "T_mult": 1}, every="epoch")
    rates = build_rates(schedule, optimizer, steps=2 * epochs, steps_per_epoch=2)
    assert isinstance(rates, TorchRates)
    rates.scheduler.T_0 = rates.scheduler.T_i = "one"  # type: ignore[attr-defined]
    for step in range(2 * epochs):
        if step == 2:
            with pytest.raises(RecipeError, match=r"^schedule: "):
                rates.set(step)
            return
        rates.set(step)


def test_devices_without_numbers_are_refused() -> None:
    with pytest.raises(RunError, match="'meta' has shapes and no numbers"):
        device_of("meta")


@pytest.mark.parametrize("rate", [1e30, 1e20])
def test_what_is_about_to_diverge_is_not_measured(rate: float, tmp_path: Path) -> None:
    """An epoch too short for its patience to end; the numbers are null, and the run goes on to say why."""
    changes = {"optimizer__lr": rate, "schedule__warmup_steps": 0, "measurement__fisher": True}
    config = tiny(**changes, measurement__every=1, measurement__hessian=True, training__epochs=1)
    summary = train(RunFolder(tmp_path), config, device="cpu")
    assert summary["skipped_steps"] > 0
    assert summary["last"]["s_rho"] is None


def test_accumulated_parts_give_the_gradient_of_the_batch() -> None:
    """With a model that knows no batch, two halves are the whole."""
    weights = []
    for parts in (1, 2):
        config = tiny(
            model__name="mlp",
            model__options={},
            objective__name="plain",
            objective__rho=None,
            objective__beta=None,
            objective__options={},
            training__accumulate=parts,
            data__augment="none",
        )
        torch.manual_seed(0)
        trainer = Trainer(config, Supervised(config, CPU), CPU)
        for _ in range(3):
            trainer.advance()
        weights.append(torch.nn.utils.parameters_to_vector(trainer.task.model.parameters()).detach())
    assert torch.allclose(*weights, atol=1e-6)
