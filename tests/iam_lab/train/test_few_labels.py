"""Few labels: which images have them, what each step sees of the others, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.iam_lab.train.configs import tiny_semi
from torch.nn import functional as F

import torch_iam as iam
from iam_lab.data import ImageSet
from iam_lab.errors import LabError, RunError
from iam_lab.recipes.schema import Config
from iam_lab.runs.folder import RunFolder
from iam_lab.train import data
from iam_lab.train.run import train
from iam_lab.train.semi_supervised import SemiSupervised
from iam_lab.train.task import build_task

CPU = torch.device("cpu")


def task(**changes: Any) -> SemiSupervised:
    torch.manual_seed(0)
    made = build_task(tiny_semi(**changes), CPU)
    assert isinstance(made, SemiSupervised)
    made.model.train()
    return made


def test_labels_are_balanced_and_drawn_by_the_seed() -> None:
    chosen = [task(seed=seed).paired for seed in (0, 0, 1)]
    assert torch.equal(chosen[0].chosen, chosen[1].chosen)
    assert not torch.equal(chosen[0].chosen, chosen[2].chosen)
    assert chosen[0].labelled.data.labels.bincount().tolist() == [2] * 10


@pytest.mark.parametrize(("included", "pool"), [(False, 100), (True, 120)])
def test_the_pool_has_the_labelled_images_where_it_is_to(included: bool, pool: int) -> None:
    made = task(semi__include_labelled=included)
    assert len(made.paired.unlabelled.data) == pool
    assert made.batches_per_epoch == pool // 12
    assert made.images_per_batch == 18


@pytest.mark.parametrize("changes", [{}, {"data.validation": 0.0}, {"data.train_images": None}], ids=str)
def test_the_stored_indices_are_those_of_the_data_set_itself(changes: dict[str, Any]) -> None:
    """Not of what data.validation and data.train_images leave of it."""
    made = task(**changes)
    labels_file = made.files()["labels.json"]
    stored, here = data.load("digits", "train").subset(labels_file["labelled"]), made.paired.labelled.data
    assert torch.equal(stored.images, here.images)
    assert torch.equal(stored.labels, here.labels)
    assert labels_file["of"] == "indices of images in the training set of digits as it is stored, from 0"


def test_fewer_labels_than_a_batch_go_on_over_the_end_of_a_pass() -> None:
    made = task(training__batch_size=48, objective__options={})  # 20 labels: 12 passes fill 5 batches
    stream = made.batches()
    batches = [next(stream) for _ in range(7)]
    assert all(images.shape == (48, 1, 8, 8) for (images, _), _ in batches)
    seen = torch.cat([labels for _, labels in batches[:5]])
    assert seen.bincount().tolist() == [24] * 10
    resumed = task(training__batch_size=48, objective__options={}, seed=3)
    state = task(training__batch_size=48, objective__options={})
    begun = state.batches()
    for _ in range(4):
        next(begun)
    resumed.load_state_dict(state.state_dict())
    (images, _), labels = next(resumed.batches())
    assert torch.equal(images, batches[4][0][0])
    assert torch.equal(labels, batches[4][1])


def test_fewer_images_than_a_batch_are_enough_where_batches_go_on() -> None:
    made = task(data__train_images=48, semi__labels=10, training__batch_size=50)
    (images, unlabelled), _ = next(made.batches())
    assert (len(images), len(unlabelled)) == (50, 12)


def test_a_batch_has_images_with_and_without_labels() -> None:
    (images, unlabelled), labels = next(task().batches())
    assert (images.shape, unlabelled.shape, labels.shape) == ((6, 1, 8, 8), (12, 1, 8, 8), (6,))


def test_both_kinds_share_the_clean_pass_and_its_statistics() -> None:
    made, twin = task(), task()
    batch = next(made.batches())
    (images, unlabelled), labels = batch
    passes: list[int] = []
    made.objective.model.register_forward_pre_hook(lambda _, args: passes.append(len(args[0])))
    torch.manual_seed(1)  # of Dropout
    step = made.backward(batch)
    assert set(passes) == {18}  # clean, ascent, perturbed: never another batch
    torch.manual_seed(1)
    logits = twin.model(torch.cat([images, unlabelled]))
    assert step.outputs.shape == logits.shape
    for name, buffer in twin.model.named_buffers():
        assert torch.equal(buffer, dict(made.model.named_buffers())[name]), name
    assert made.watch(batch, step)["train_error"] == pytest.approx(
        100 * float((step.outputs[:6].argmax(1) != labels).float().mean())
    )


def test_the_gradient_is_that_of_the_loss_and_the_inconsistency_of_all() -> None:
    options = {"model.options": {}, "objective.options": {"start_norm": 0.05}}
    made, twin = task(**options), task(**options)
    (images, unlabelled), labels = batch = next(made.batches())
    made.backward(batch)
    penalty = iam.InconsistencyPenalty(twin.model, rho=0.1, start_norm=0.05)
    penalty.maximizer.generator.set_state(twin.objective.state_dict()["maximizer"]["generator"])
    everything = torch.cat([images, unlabelled])
    logits = twin.model(everything)
    loss = F.cross_entropy(logits[:6], labels, label_smoothing=0.1) + penalty(everything, logits)
    loss.backward()  # type: ignore[no-untyped-call]
    for own, other in zip(made.model.parameters(), twin.model.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-4, atol=1e-6)


def test_methods_without_a_use_for_unlabelled_images_see_the_labelled_ones_alone() -> None:
    made = task(objective={"name": "sam", "rho": 0.1})
    before = made.paired.unlabelled.state_dict()
    batch = next(made.batches())
    step = made.backward(batch)
    assert step.outputs.shape == (6, 10)
    assert batch[0][1] is None
    after = made.paired.unlabelled.state_dict()
    assert after["position"] == 0
    assert torch.equal(after["draws"], before["draws"])  # nothing was augmented for nobody
    assert made.images_per_batch == 6
    assert made.batches_per_epoch == 100 // 12  # as many steps as the others make


def test_the_split_is_stored_and_guarded(tmp_path: Path) -> None:
    folder, config = RunFolder(tmp_path / "run"), tiny_semi(training__epochs=1)
    train(folder, config, device="cpu")
    path = folder.path / "labels.json"
    assert json.loads(path.read_text())["labelled"] == task(seed=3).paired.chosen.tolist()
    folder.summary_file.unlink()
    path.write_text(json.dumps({"labelled": [1, 2]}))
    with pytest.raises(RunError, match=r"labels\.json says otherwise"):
        train(folder, config, device="cpu")


def test_a_state_with_other_labels_is_refused() -> None:
    made = task()
    state = made.state_dict()
    state["data"]["chosen"] = state["data"]["chosen"].flip(0)
    with pytest.raises(LabError, match="labels for other images"):
        made.load_state_dict(state)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"semi__labels": None}, "semi.labels is missing"),
        ({"semi__labels": 25}, "cannot be shared equally by 10 classes. Choose 20 or 30"),
        ({"semi__labels": 0}, "semi.labels: 0 labelled images are none to learn from.*Choose 10"),
        ({"semi__labels": -10}, "semi.labels: -10 labelled images are none to learn from.*Choose 10"),
        ({"semi__labels": 2000}, "semi.labels: 2000 labelled images .* there are only 120 images"),
        ({"semi__labels": 125}, "semi.labels: 125 labelled images .* there are only 120 images"),
        ({"semi__labels": 120}, r"Class \d has only \d+ images; 120 labels for 10 classes need 12 of each"),
        (
            {"semi__batch_size": 101},
            "semi.batch_size: there are 100 images .* batch of 101. Choose at most 100",
        ),
        ({"semi__batch_size": 0}, "semi.batch_size must be an integer of 1 or more, found 0"),
        ({"training__accumulate": 3, "semi__batch_size": 13}, "divisible by training.accumulate 3"),
        ({"objective__options": {}, "objective__sub_batch": 3}, "objective.sub_batch"),
    ],
    ids=str,
)
def test_what_cannot_be_says_why(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LabError, match=message):
        task(**changes)


def _only(monkeypatch: pytest.MonkeyPatch, keep: Any) -> Config:
    """Train on the digits that ``keep`` says, all of them."""
    read = data.load

    def load(name: str, split: str) -> ImageSet:
        images = read(name, split)
        return images.subset(keep(images.labels)) if split == "train" else images

    monkeypatch.setattr(data, "load", load)
    config = tiny_semi(data__validation=0.0, data__train_images=None)
    return replace(config, semi=replace(config.semi, labels=20))


def test_a_class_without_images(monkeypatch: pytest.MonkeyPatch) -> None:
    config = _only(monkeypatch, lambda labels: (labels != 3).nonzero().flatten())
    with pytest.raises(LabError, match="Class 3 has no image"):
        build_task(config, CPU)


def test_no_image_left_without_a_label(monkeypatch: pytest.MonkeyPatch) -> None:
    config = _only(
        monkeypatch, lambda labels: torch.cat([(labels == digit).nonzero()[:2, 0] for digit in range(10)])
    )
    with pytest.raises(LabError, match=r"semi\.labels: .* all 20 are .* or set semi\.include_labelled"):
        build_task(config, CPU)
    made = build_task(replace(config, semi=replace(config.semi, include_labelled=True)), CPU)
    assert isinstance(made, SemiSupervised)
    assert len(made.paired.unlabelled.data) == 20
