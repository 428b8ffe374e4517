"""Streamed batches depend on seed, epoch and image alone, and go on where an interrupted run stopped."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from iam_lab.data import DataError, DataSpec, Stream, open_source, spec_of
from iam_lab.data.order import EpochOrder, seed_of

SPEC = DataSpec(
    "photos", 3, 3, 16, (0.5, 0.4, 0.3), (0.2, 0.2, 0.25), {"train": 22, "test": 22}, streamed=True
)


@pytest.fixture
def root(files, tmp_path):
    """22 JPEG images of several sizes in three shards, and the same as an image folder."""
    images, labels = [], []
    for index in range(22):
        pixels = files.pixels(1, size=40, seed=index)[0][: 24 + index % 5, : 20 + index % 7]
        images.append(files.encode(pixels, "JPEG"))
        labels.append(index % 3)
    for shard, (start, stop) in enumerate([(0, 9), (9, 10), (10, 22)]):
        name = f"train-{shard:05d}-of-00003.parquet"
        files.parquet(tmp_path / "shards/photos/data" / name, images[start:stop], labels[start:stop], rows=3)
    for split in ("train", "val"):
        for index, (image, label) in enumerate(zip(images, labels, strict=True)):
            folder = tmp_path / "folder/photos" / split / f"class{label}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{index:02d}.jpg").write_bytes(image)
    return tmp_path


def stream(root, kind="shards", split="train", **options):
    spec = replace(SPEC, stems={"train": ("train",), "test": ("validation", "val")})
    source = open_source(spec, split, root / kind)
    options = {"batch_size": 4, "train": split == "train", "workers": 0, "window": 8} | options
    return Stream(source, spec, **options)


def all_equal(first, second):
    pairs = list(zip(first, second, strict=True))
    return all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in pairs)


@pytest.mark.parametrize("kind", ["shards", "folder"])
def test_workers_do_not_matter(root, kind):
    alone = stream(root, kind)
    expected = [list(alone), list(alone)]
    shared = stream(root, kind, workers=2)
    assert all_equal(list(shared), expected[0])
    assert all_equal(list(shared), expected[1])
    assert not all_equal(*expected)
    assert alone.epoch == shared.epoch == 2
    assert [tuple(x.shape) for x, _ in expected[0]] == [(4, 3, 16, 16)] * 5


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("seen", [0, 2, 5, 8])
def test_a_resumed_run_goes_on_with_the_right_sample(root, seen, workers):
    whole = stream(root, workers=workers)
    batches = whole.forever()
    for _ in range(seen):
        next(batches)
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    file.seek(0)
    resumed = stream(root)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert (resumed.epoch, resumed.samples) == (seen // 5, seen % 5 * 4)
    again = resumed.forever()
    assert all_equal([next(batches) for _ in range(7)], [next(again) for _ in range(7)])


def test_the_global_random_stream_is_left_alone(root):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    list(stream(root))
    list(stream(root, workers=1))
    assert torch.equal(torch.rand(3), expected)


def test_resuming_with_another_batch_size(root):
    """The order does not depend on the batch size: the images not yet seen follow."""
    first = stream(root)
    order = first._order.indices().tolist()
    next(iter(first))
    resumed = stream(root, batch_size=3)
    resumed.load_state_dict(first.state_dict())
    labels = torch.cat([y for _, y in resumed]).tolist()
    assert labels == [index % 3 for index in order[4:22]]
    last = stream(root, batch_size=20)
    last.load_state_dict(first.state_dict())
    assert (last.epoch, last.samples) == (1, 0)


def test_other_data_is_refused(root):
    state = stream(root).state_dict()
    with pytest.raises(DataError, match=r"'seed': 0.*'seed': 1.*same data, seed and window"):
        stream(root, seed=1).load_state_dict(state)


def test_evaluation_is_resize_and_centre_crop(root):
    batches = stream(root, "folder", "test")
    assert (len(batches), batches.samples_per_epoch) == (6, 22)
    x = torch.cat([x for x, _ in batches])
    usual = v2.Compose([v2.Resize(18), v2.CenterCrop(16), v2.ToImage(), v2.ToDtype(torch.float32, scale=True),
                        v2.Normalize(list(SPEC.mean), list(SPEC.std))])  # fmt: skip
    source = open_source(SPEC, "train", root / "folder")
    expected = torch.stack([usual(Image.open(io.BytesIO(source.encoded(i)))) for i in range(22)])
    torch.testing.assert_close(x, expected, rtol=1e-5, atol=1e-5)
    assert all_equal(list(batches), list(batches))


def test_training_is_torchvisions_transform_under_the_images_seed(root):
    batches = stream(root, seed=5, channels_last=True)
    x, y = next(iter(batches))
    assert x.is_contiguous(memory_format=torch.channels_last)
    floats = v2.Compose(
        [v2.ToDtype(torch.float32, scale=True), v2.Normalize(list(SPEC.mean), list(SPEC.std))]
    )
    usual = v2.Compose([v2.RandomResizedCrop(16), v2.RandomHorizontalFlip(), v2.ToImage(), floats])
    source = open_source(SPEC, "train", root / "shards")
    for row, index in enumerate(batches._order.indices()[:4].tolist()):
        torch.manual_seed(seed_of(5, 0, index))
        expected = usual(Image.open(io.BytesIO(source.encoded(index))))
        torch.testing.assert_close(x[row], expected, rtol=1e-5, atol=1e-5)
        assert y[row] == index % 3


def test_imagenet_as_the_hub_lays_it_out(files, tmp_path):
    spec = spec_of("imagenet")
    for stem, count in (("train", 6), ("validation", 3)):
        images = [files.encode(image, "JPEG") for image in files.pixels(count, size=70)]
        files.parquet(
            tmp_path / f"imagenet/data/{stem}-00000-of-00001.parquet", images, [999, 0, 5] * (count // 3)
        )
    train = Stream(open_source(spec, "train", tmp_path), spec, 4, train=True, workers=1)
    assert [(tuple(x.shape), len(y)) for x, y in train] == [((4, 3, 224, 224), 4)]
    test = Stream(open_source(spec, "test", tmp_path), spec, 2, train=False, workers=0)
    assert torch.cat([y for _, y in test]).tolist() == [999, 0, 5]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_corrupt_image_is_named_without_a_workers_traceback(files, tmp_path, workers):
    images = [files.encode(image, "JPEG") for image in files.pixels(6, size=20)]
    images[4] = images[4][:60]
    files.parquet(tmp_path / "photos/train.parquet", images, [0, 1, 2, 0, 1, 2])
    batches = Stream(open_source(SPEC, "train", tmp_path), SPEC, 3, train=True, workers=workers)
    with pytest.raises(DataError) as caught:
        list(batches)
    assert f"{tmp_path}/photos/train.parquet, row 4: " in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_options_that_cannot_be(root):
    with pytest.raises(DataError, match="photos has 22 images, not one batch of 23"):
        stream(root, batch_size=23)
    with pytest.raises(ValueError, match="found batch_size=0, window=8, workers=0"):
        stream(root, batch_size=0)


# --- the order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[1] * 50, [7] * 9 + [2], [100], [3, 50, 1, 1, 20]])
@pytest.mark.parametrize("drop_last", [True, False])
def test_every_image_once_an_epoch(sizes, drop_last):
    order = EpochOrder(sizes, 6, seed=1, window=10, drop_last=drop_last)
    total = sum(sizes)
    epochs = []
    for epoch in range(3):
        order.epoch = epoch
        assert sorted(order.indices().tolist()) == list(range(total))
        keys = [key for batch in order for key in batch]
        assert {key[0] for key in keys} == {epoch}
        epochs.append([key[1] for key in keys])
        assert epochs[-1] == order.indices().tolist()[: len(keys)]
        assert len(keys) == (total // 6 * 6 if drop_last else total)
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_window_reads_few_groups():
    sizes = [10] * 200
    order = EpochOrder(sizes, 6, seed=1, window=100)
    groups = (order.indices() // 10).split(100)
    assert max(len(window.unique()) for window in groups) <= order.groups_in_window() == 11
    reads = 0
    kept: list[int] = []
    for group in (order.indices() // 10).tolist():
        if group not in kept:
            reads += 1
            kept = [*kept, group][-order.groups_in_window() :]
        else:
            kept = [*[g for g in kept if g != group], group]
    assert reads <= 220  # of 200 groups


def test_every_place_is_as_likely():
    """Over many epochs an image comes early and late alike, in groups too."""
    order = EpochOrder([5] * 40, 10, seed=3, window=25)
    places = []
    for order.epoch in range(400):
        places.append((order.indices() == 17).nonzero().item())
    assert abs(sum(places) / 400 - 99.5) < 4 * 57.7 / 20


def test_seeds_of_neighbours_differ():
    seeds = {seed_of(seed, epoch, index) for seed in range(5) for epoch in range(5) for index in range(100)}
    assert len(seeds) == 2500
    assert all(0 <= seed < 2**63 for seed in seeds)
