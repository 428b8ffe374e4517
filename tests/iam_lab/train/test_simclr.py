"""SimCLR: its loss written out, its gradient with IAM-D, one clean pass, and the linear probe."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.iam_lab.train.configs import tiny_simclr
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import torch_iam as iam
from iam_lab.errors import Interrupted, LabError
from iam_lab.models import MLP, Encoder
from iam_lab.recipes import find_recipe
from iam_lab.recipes.few_labels import Probe
from iam_lab.recipes.typed import updated
from iam_lab.runs.folder import RunFolder
from iam_lab.train.contrastive import NTXent, SimCLR, partners
from iam_lab.train.probe import features, linear_probe
from iam_lab.train.run import train
from iam_lab.train.task import build_task
from iam_lab.train.trainer import Trainer

CPU = torch.device("cpu")


def task(**changes: Any) -> SimCLR:
    torch.manual_seed(0)
    made = build_task(tiny_simclr(**changes), CPU)
    assert isinstance(made, SimCLR)
    made.model.train()
    return made


def written_out(z: Tensor, tau: float) -> float:
    """Image by image, as in the paper of SimCLR."""
    half, total = len(z) // 2, 0.0
    for i in range(len(z)):
        partner = i + half if i < half else i - half
        cosines = [float(F.cosine_similarity(z[i], z[j], dim=0)) for j in range(len(z))]
        others = sum(math.exp(cosines[j] / tau) for j in range(len(z)) if j != i)
        total -= math.log(math.exp(cosines[partner] / tau) / others)
    return total / len(z)


@pytest.mark.parametrize("tau", [0.1, 0.5])
def test_the_loss_is_nt_xent(tau: float) -> None:
    z = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    assert float(NTXent(tau)(z, partners(4, CPU))) == pytest.approx(written_out(z, tau), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_similarities_are_compared_in_single_precision_under_autocast(dtype: torch.dtype) -> None:
    z = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    plain = NTXent(0.1)(z, partners(4, CPU))
    with torch.autocast("cpu", dtype=dtype):
        assert torch.equal(NTXent(0.1)(z, partners(4, CPU)), plain)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_it_trains_in_low_precision(precision: str) -> None:
    config = find_recipe("digits-simclr-iam-d").config
    config = updated(config, {"training.precision": precision, "training.steps": 6, "data.train_images": 256})
    torch.manual_seed(0)
    trainer = Trainer(config, build_task(config, CPU), CPU)
    for _ in range(6):
        trainer.advance()
    means = trainer.totals.means()
    assert trainer.counts()["skipped_steps"] == trainer.counts()["failed_ascents"] == 0
    assert means["train_loss"] is not None
    assert 0 < means["train_loss"] < math.log(2 * config.training.batch_size) + 0.5
    assert means["train_s_rho"] is not None
    assert means["train_s_rho"] > 0


def test_the_network_is_an_encoder_with_the_projector_of_the_config() -> None:
    model = task().model
    assert isinstance(model, Encoder)
    assert isinstance(model.head, MLP)
    assert [tuple(weight.shape) for weight in model.head.parameters()] == [(16, 64), (16,), (8, 16), (8,)]


def test_both_views_share_one_clean_pass() -> None:
    made, twin = task(), task()
    (one, other), labels = batch = next(made.batches())
    assert (len(one), len(other), len(labels)) == (24, 24, 24)
    assert not torch.equal(one, other)
    sizes: set[int] = set()
    made.model.register_forward_pre_hook(lambda _, args: sizes.add(len(args[0])))
    torch.manual_seed(1)  # of Dropout
    step = made.backward(batch)
    assert sizes == {48}
    torch.manual_seed(1)
    logits = twin.model(torch.cat([one, other]))
    torch.testing.assert_close(step.outputs, logits)
    state = made.model.state_dict()
    assert all(torch.equal(buffer, state[name]) for name, buffer in twin.model.named_buffers())
    assert 0 <= float(made.watch(batch, step)["train_match_error"]) <= 100


def test_watching_costs_what_is_said() -> None:
    """The least network's share of a step, as SimCLR.watch tells it."""
    torch.manual_seed(0)
    made = build_task(find_recipe("digits-simclr-sgd").config, CPU)
    batch = next(made.batches())
    made.backward(batch)  # whose check costs a forward pass
    with FlopCounterMode(display=False) as whole:
        step = made.backward(batch)
    with FlopCounterMode(display=False) as watched:
        made.watch(batch, step)
    assert 100 * watched.get_total_flops() / whole.get_total_flops() == pytest.approx(0.35, abs=0.01)


@pytest.mark.parametrize("axis", ["similarity", "projection"])
def test_the_gradient_is_that_of_the_loss_and_the_divergence_of_its_axis(axis: Any) -> None:
    options = {"model.options": {}, "objective.options": {"start_norm": 3.0}, "simclr.axis": axis}
    made, twin = task(**options), task(**options)
    views, _ = batch = next(made.batches())
    step = made.backward(batch)
    penalty = iam.InconsistencyPenalty(
        twin.model, rho=0.1, start_norm=3.0, divergence=iam.SimilarityKL(0.5, axis)
    )
    penalty.maximizer.generator.set_state(twin.objective.state_dict()["maximizer"]["generator"])
    both = torch.cat(views)
    z = twin.model(both)
    s = penalty(both, z)
    (NTXent(0.5)(z, partners(24, CPU)) + s).backward()  # type: ignore[no-untyped-call]
    assert step.inconsistency is not None
    torch.testing.assert_close(step.inconsistency, s.detach(), rtol=1e-4, atol=1e-7)
    for own, other in zip(made.model.parameters(), twin.model.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-3, atol=1e-6)


def test_a_probe_depends_on_the_model_alone_and_leaves_no_trace() -> None:
    made = task()
    before = made.model.state_dict()
    kept = {name: tensor.clone() for name, tensor in before.items()}
    stream = torch.get_rng_state()
    first, second = (made.evaluate(made.model, lambda: None) for _ in range(2))
    assert first == second
    assert {"test_error", "test_loss", "validation_error", "probe_train_error"} <= set(first)
    assert torch.equal(torch.get_rng_state(), stream)
    assert made.model.training
    assert all(torch.equal(tensor, kept[name]) for name, tensor in made.model.state_dict().items())


def test_a_probe_learns_what_is_linear() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (300,), generator=generator)
    inputs = F.one_hot(labels, 3).float() + 0.1 * torch.randn(300, 3, generator=generator)
    found = {"train": (inputs[:200], labels[:200]), "test": (inputs[200:], labels[200:])}
    assert linear_probe(found, 3, Probe(batch_size=20), 0, lambda: None)["test_error"] < 2


def test_features_are_those_before_the_projector_in_evaluation_mode() -> None:
    made = task()
    assert isinstance(made.model, Encoder)
    found, labels = features(made.model, made.data, "validation", lambda: None)
    images = next(iter(made.data.first("validation", -1)))[0]
    with torch.no_grad():
        expected = made.model.eval().features(images)
    torch.testing.assert_close(found[: len(images)], expected)
    assert len(labels) == made.data.held["validation"].size


def test_a_probe_can_be_interrupted() -> None:
    def stop() -> None:
        raise Interrupted("stopped", 15)

    with pytest.raises(Interrupted):
        task().evaluate(task().model, stop)


def test_s_rho_is_measured_with_the_divergence_of_the_training() -> None:
    made = task()
    found = made.measure(made.model, lambda: None)
    images, _ = next(iter(made.data.first("test", 16)))
    expected = iam.local_inconsistency(
        made.model, [images], 0.1, steps=1, restarts=1, divergence=iam.SimilarityKL(0.5), seed=3
    )
    assert found["s_rho"] == pytest.approx(expected.value)
    assert found["lambda_max_fisher"] is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"simclr__temperature": 0.0}, "simclr.temperature must be a finite number above 0, found 0.0"),
        ({"simclr__projector": ()}, "simclr.projector must be one or more integers above 0"),
        ({"training__label_smoothing": 0.1}, "training.label_smoothing is 0.1, but NT-Xent has no labels"),
        ({"training__accumulate": 2}, "training.accumulate: the loss of SimCLR compares all views"),
        ({"objective__options": {}, "objective__sub_batch": 12}, "objective.sub_batch: the loss of SimCLR"),
        ({"measurement__hessian": True}, "measurement.hessian needs a loss with labels"),
        ({"model__name": "timm:resnet18", "model__options": {}}, "has no features"),
        ({"probe__epochs": 0}, "probe.epochs must be an integer of 1 or more, found 0"),
        ({"probe__batch_size": -1}, "probe.batch_size must be an integer of 1 or more, found -1"),
        ({"probe__lr": -1.0}, "probe.lr must be a finite number above 0, found -1.0"),
        ({"probe__lr": math.nan}, "probe.lr must be a finite number above 0, found nan"),
        (
            {"probe__weight_decay": -1.0},
            "probe.weight_decay must be a finite number of 0 or more, found -1.0",
        ),
        ({"training__batch_size": 1}, "SimCLR learns from 2 images or more, found 1"),
        (
            {"data__augment": "none"},
            "data.augment none draws nothing, so that both views .* would be the same",
        ),
        ({"data__augment": "none", "data__image_size": 12}, "data.augment none draws nothing"),
        ({"objective__options": {"batch_fraction": 0.5}}, "batch_fraction: the first rows .* first views"),
        ({"measurement__images": 17, "measurement__batch_size": 8}, "leave one to a pass of its own"),
        ({"measurement__images": -1, "evaluation__batch_size": 359}, "360 images .* leave one to a pass"),
    ],
    ids=str,
)
def test_what_cannot_be_says_why_before_anything_runs(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LabError, match=message):
        task(**changes)


def test_a_probe_that_cannot_be_leaves_no_run_behind(tmp_path: Path) -> None:
    """One found at the first evaluation would, and its folder refused the field once it was mended."""
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(LabError, match=r"probe\.lr"):
        train(folder, tiny_simclr(probe__lr=0.0), device="cpu")
    assert not folder.exists
