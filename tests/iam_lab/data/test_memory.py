"""Batches in memory: every image once an epoch, by seed, and again the same after a resume."""

from __future__ import annotations

import io

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from iam_lab.data import DataError, DeviceData, ImageSet, hold_out, labelled_subset, unlabelled_subset
from iam_lab.data.augment import HorizontalFlip, Normalize, Pipeline, RandomCrop, Views

PLAIN = Pipeline((), Normalize((0.0,), (1.0,)))
AUGMENT = Pipeline((RandomCrop(2), HorizontalFlip()), Normalize((0.5,), (0.5,)))


@pytest.fixture
def data():
    images = torch.randint(
        0, 256, (23, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    return ImageSet(images, torch.arange(23), classes=23)


@pytest.mark.parametrize(("drop_last", "sizes"), [(True, [5] * 4), (False, [5] * 4 + [3])])
def test_every_image_once_an_epoch_in_a_new_order(data, drop_last, sizes):
    batches = DeviceData(data, 5, PLAIN, seed=1, drop_last=drop_last)
    epochs = [[y.tolist() for _, y in batches] for _ in range(3)]
    for epoch in epochs:
        assert [len(y) for y in epoch] == sizes
        flat = [label for batch in epoch for label in batch]
        assert len(set(flat)) == len(flat) == batches.samples_per_epoch
    assert epochs[0] != epochs[1] != epochs[2]
    assert len(batches) == len(sizes)
    assert batches.epoch == 3


def test_images_stay_with_their_labels(data):
    for x, y in DeviceData(data, 4, PLAIN, seed=0):
        torch.testing.assert_close(x, data.images[y].float() / 255)


def test_without_shuffling_the_order_is_the_datas(data):
    batches = DeviceData(data, 10, PLAIN, shuffle=False, drop_last=False)
    assert torch.cat([y for _, y in batches]).tolist() == list(range(23))


def test_the_seed_decides(data):
    def epoch(seed):
        return [(x, y) for x, y in DeviceData(data, 5, AUGMENT, seed=seed)]

    assert all(
        torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(epoch(1), epoch(1), strict=True)
    )
    assert not all(torch.equal(b, d) for (_, b), (_, d) in zip(epoch(1), epoch(2), strict=True))


def test_the_global_random_stream_is_left_alone(data):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    list(DeviceData(data, 5, AUGMENT, seed=1))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("seen", [0, 1, 3, 4, 5, 9])
def test_a_resumed_run_draws_the_same(data, seen):
    """After any number of batches, in the middle of an epoch and at its end; through a file."""
    whole = DeviceData(data, 5, AUGMENT, seed=1)
    stream = whole.forever()
    for _ in range(seen):
        next(stream)
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    file.seek(0)
    resumed = DeviceData(data, 5, AUGMENT, seed=99)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert (resumed.epoch, resumed.position) == divmod(seen, 4)
    for (x, y), (again_x, again_y), _ in zip(stream, resumed.forever(), range(9), strict=False):
        assert torch.equal(x, again_x)
        assert torch.equal(y, again_y)


@pytest.mark.parametrize("size", [5, 23, 40, 46])
def test_batches_over_the_end_of_a_pass_see_every_image_equally_often(data, size):
    batches = DeviceData(data, size, PLAIN, seed=1, over_ends=True)
    labels = [y for _, y in batches]
    assert [len(y) for y in labels] == [size] * len(batches)
    passes = torch.cat(labels).view(-1, 23)
    assert len(passes) == batches.passes
    for one in passes:
        assert sorted(one.tolist()) == list(range(23))
    assert batches.epoch == 1
    if size == 23:  # where passes are whole batches anyway, nothing is different
        again = DeviceData(data, size, PLAIN, seed=1)
        assert torch.equal(torch.cat([y for _, y in again]), labels[0])


@pytest.mark.parametrize("seen", [0, 3, 22, 23, 30])
def test_batches_over_the_end_of_a_pass_resume(data, seen):
    whole = DeviceData(data, 40, AUGMENT, seed=1, over_ends=True)
    stream = whole.forever()
    for _ in range(seen):
        next(stream)
    resumed = DeviceData(data, 40, AUGMENT, seed=99, over_ends=True)
    resumed.load_state_dict(whole.state_dict())
    for (x, y), (again_x, again_y), _ in zip(stream, resumed.forever(), range(30), strict=False):
        assert torch.equal(x, again_x)
        assert torch.equal(y, again_y)


class Transfers(TorchDispatchMode):
    """Counts permutations, and tensors of indices that are brought to the device."""

    def __init__(self):
        super().__init__()
        self.drawn = self.brought = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        self.drawn += name.startswith("aten.randperm")
        self.brought += name.startswith("aten._to_copy") and args[0].dtype == torch.int64
        return function(*args, **(kwargs or {}))


def test_an_order_is_brought_to_the_device_in_one_piece_and_seldom(data):
    """On the meta device, as on a GPU, the order is drawn on the CPU and copied."""
    there = ImageSet(data.images.to("meta"), data.labels.to("meta"), data.classes)
    batches = DeviceData.__new__(DeviceData)
    real = DeviceData(data, 4, PLAIN, over_ends=True)
    batches.__dict__ |= real.__dict__ | {"data": there}
    with Transfers() as counted:
        order = batches._indices()
    assert (len(order), counted.drawn, counted.brought) == (23 * 4, 4, 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a wait is one for a GPU")
def test_no_batch_waits_for_the_gpu(data):
    there = data.to("cuda")
    batches = DeviceData(there, 40, AUGMENT, seed=1, over_ends=True)
    stream = batches.forever()
    next(stream)  # constants are brought once
    try:
        torch.cuda.set_sync_debug_mode("error")
        for _ in range(3 * len(batches)):
            next(stream)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_an_interrupted_epoch_goes_on(data):
    batches = DeviceData(data, 5, PLAIN, seed=1)
    first = next(iter(batches))[1]
    rest = [y for _, y in batches]
    assert len(rest) == 3
    assert len(set(torch.cat([first, *rest]).tolist())) == 20


def test_a_state_of_other_data_is_refused(data):
    state = DeviceData(data, 5, PLAIN).state_dict()
    with pytest.raises(DataError, match=r"'batch_size': 5.*'batch_size': 4.*same data and batch size"):
        DeviceData(data, 4, PLAIN).load_state_dict(state)


def test_views_have_their_own_draws(data):
    same = Pipeline((RandomCrop(2), HorizontalFlip()), Normalize((0.5,), (0.5,)))
    (weak, strong), _ = next(iter(DeviceData(data, 20, Views((same, same)))))
    assert weak.shape == strong.shape
    assert not torch.equal(weak, strong)


def test_batches_that_cannot_be(data):
    with pytest.raises(DataError, match="23 images, not one batch of 24"):
        DeviceData(data, 24, PLAIN)
    with pytest.raises(ValueError, match="batch_size is at least 1; found 0"):
        DeviceData(data, 0, PLAIN)
    assert len(DeviceData(data, 24, PLAIN, drop_last=False)) == 1
    assert len(DeviceData(data, 24, PLAIN, over_ends=True)) == 23


# --- splits --------------------------------------------------------------------------------------------


def test_a_validation_split_by_seed():
    train, validation = hold_out(50, 0.1, seed=3)
    assert (len(train), len(validation)) == (45, 5)
    assert sorted([*train.tolist(), *validation.tolist()]) == list(range(50))
    assert torch.equal(hold_out(50, 0.1, seed=3)[1], validation)
    assert not torch.equal(hold_out(50, 0.1, seed=4)[1], validation)
    for fraction in (0.0, 1.0, 0.001):
        with pytest.raises(DataError, match="both parts need at least one image"):
            hold_out(50, fraction, seed=0)


def test_labels_are_shared_equally_by_the_classes():
    labels = torch.randint(0, 5, (1000,), generator=torch.Generator().manual_seed(0))
    chosen = labelled_subset(labels, 40, 5, seed=1)
    assert labels[chosen].bincount().tolist() == [8] * 5
    assert len(set(chosen.tolist())) == 40
    assert torch.equal(chosen, labelled_subset(labels, 40, 5, seed=1))
    assert not torch.equal(chosen, labelled_subset(labels, 40, 5, seed=2))


def test_every_image_of_a_class_is_as_likely():
    labels = torch.tensor([0, 0, 0, 0, 1, 1])
    counts = torch.stack(
        [torch.bincount(labelled_subset(labels, 2, 2, seed=s), minlength=6) for s in range(2000)]
    ).sum(0)
    expected = torch.tensor([500] * 4 + [1000] * 2)
    assert ((counts - expected).abs() < 5 * expected.float().sqrt()).all()


@pytest.mark.parametrize(
    ("labels", "count", "classes", "message"),
    [
        ([0, 1, 2] * 4, 10, 3, "10 labelled images cannot be shared equally by 3 classes. Choose 9 or 12"),
        ([0, 1, 2] * 4, 2, 3, "Choose 3"),
        ([0, 1, 2, 0, 1], 4, 3, "Choose 3[.]"),  # there are no 6
        ([0, 1, 2] * 4, 0, 3, "0 labelled images are none to learn from: every one of the 3 classes.*Choose 3"),
        ([0, 1, 2] * 4, -3, 3, "-3 labelled images are none to learn from.*Choose 3"),
        ([0, 1, 2] * 4, 15, 3, "15 labelled images were asked for; there are only 12"),
        ([0, 1, 2] * 4, 16, 3, "16 labelled images were asked for; there are only 12"),
        ([0, 1, 1, 0], 3, 3, "Class 2 has no image; 3 labels for 3 classes need 1 of each"),
        ([0, 0, 0, 1], 4, 2, "Class 1 has only 1 images; 4 labels for 2 classes need 2"),
        ([0, 1, 5], 2, 2, "Labels run from 0 to 5"),
        ([-1, 0, 1], 2, 2, "Labels run from -1 to 1"),
    ],
)  # fmt: skip
def test_labels_that_cannot_be_shared(labels, count, classes, message):
    with pytest.raises(DataError, match=message):
        labelled_subset(torch.tensor(labels), count, classes, seed=0)


def test_unlabelled_images_with_and_without_the_labelled():
    assert unlabelled_subset(4, torch.tensor([1])).tolist() == [0, 1, 2, 3]
    assert unlabelled_subset(4, torch.tensor([1]), include_labelled=False).tolist() == [0, 2, 3]
    with pytest.raises(DataError, match="all 2 are labelled"):
        unlabelled_subset(2, torch.tensor([0, 1]), include_labelled=False)
