"""Whatever the columns are called and however the files are cut, the pixels come out; damage is named."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from iam_lab.data import CATALOGUE, DataError, ImageSet, load, spec_of
from iam_lab.data.decoded import cache_path
from iam_lab.data.parquet import ParquetImages
from iam_lab.data.source import open_source

LABELS = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


def tensor(pixels):
    return torch.from_numpy(pixels if pixels.ndim == 4 else pixels[..., None]).permute(0, 3, 1, 2)


def test_the_catalogue_says_what_the_paper_used():
    assert spec_of("cifar10").mean == (0.4914, 0.4822, 0.4465)
    assert spec_of("cifar100").label == "fine_label"
    assert spec_of("svhn").mean == spec_of("imagenet").mean == (0.485, 0.456, 0.406)
    for name, spec in CATALOGUE.items():
        assert spec.name == name
        assert len(spec.mean) == len(spec.std) == spec.channels
        assert set(spec.sizes) == set(spec.stems) == {"train", "test"}


@pytest.mark.parametrize(
    "columns", [{}, {"image": "image", "label": "y"}, {"hub": False}, {"struct": False, "hub": False}]
)
def test_columns_of_any_name(files, tiny, tmp_path, columns):
    pixels = files.pixels(10)
    files.parquet(tmp_path / "tiny/train.parquet", pixels, LABELS, names=["a", "b", "c"], **columns)
    data = load(tiny, "train", root=tmp_path)
    assert torch.equal(data.images, tensor(pixels))
    assert data.labels.tolist() == LABELS
    assert data.class_names == (None if columns.get("hub") is False else ("a", "b", "c"))


def test_two_label_columns_as_in_cifar100(files, tiny, tmp_path):
    extra = {"coarse_label": pa.array([9] * 10)}
    path = files.parquet(
        tmp_path / "tiny/train.parquet", files.pixels(10), LABELS, label="fine_label", extra=extra
    )
    assert load(replace(tiny, label="fine_label"), "train", root=tmp_path).labels.tolist() == LABELS
    with pytest.raises(DataError, match=r"fine_label, coarse_label.*label='fine_label'"):
        ParquetImages([path])


@pytest.mark.parametrize(
    ("name", "image", "label", "extra"),
    [
        ("cifar10", "img", "label", None),
        ("cifar100", "img", "fine_label", "coarse_label"),
        ("fashion_mnist", "image", "label", None),
        ("mnist", "image", "label", None),
        ("svhn", "image", "label", None),
    ],
)
def test_every_data_set_as_the_hub_lays_it_out(files, tmp_path, name, image, label, extra):
    spec = spec_of(name)
    pixels = files.pixels(10, spec.image_size, spec.channels)
    for split in ("train", "test"):
        path = tmp_path / name / spec.folder / f"{split}-00000-of-00001.parquet"
        more = {extra: pa.array([3] * 10)} if extra else None
        files.parquet(path, pixels, LABELS, image=image, label=label, extra=more)
        decoy = tmp_path / name / "another_variant" / path.name
        files.parquet(decoy, files.pixels(3, 50, spec.channels), [0, 1, 2])
        data = load(name, split, root=tmp_path)
        assert torch.equal(data.images, tensor(pixels))
        assert (data.labels.tolist(), data.classes) == (LABELS, spec.classes)


@pytest.mark.parametrize("place", ["", "plain_text"])
@pytest.mark.parametrize("suffix", ["", "-0a1b2c"])
def test_shards_in_order(files, tiny, tmp_path, place, suffix):
    pixels = files.pixels(10)
    for shard, (start, stop) in enumerate([(0, 3), (3, 4), (4, 10)]):
        name = f"train-{shard:05d}-of-00003{suffix}.parquet"
        files.parquet(tmp_path / "tiny" / place / name, pixels[start:stop], LABELS[start:stop])
    data = load(tiny, "train", root=tmp_path)
    assert torch.equal(data.images, tensor(pixels))
    source = open_source(tiny, "train", tmp_path)
    assert source.group_sizes == [3, 1, 4, 2]
    assert source.where(9).endswith(f"train-00002-of-00003{suffix}.parquet, row 5")
    copy = pickle.loads(pickle.dumps(source))
    order = [9, 0, 5, 3, 8, 1]
    assert [copy.encoded(i) for i in order] == [files.encode(pixels[i]) for i in order]


def test_a_missing_shard_is_named(files, tiny, tmp_path):
    for shard in (0, 2):
        files.parquet(tmp_path / f"tiny/train-{shard:05d}-of-00003.parquet", files.pixels(3), [0, 1, 2])
    with pytest.raises(DataError, match=r"2 of the 3 train shards; missing is train-00001-of-00003.parquet"):
        load(tiny, "train", root=tmp_path)
    files.parquet(tmp_path / "tiny/train-00000-of-00002.parquet", files.pixels(3), [0, 1, 2])
    with pytest.raises(DataError, match="several downloads: of 2 and of 3"):
        load(tiny, "train", root=tmp_path)


def test_grey_and_colour_are_converted(files, tiny, tmp_path):
    grey = files.pixels(10, channels=1)
    files.parquet(tmp_path / "tiny/train.parquet", grey, LABELS)
    assert torch.equal(load(tiny, "train", root=tmp_path).images, tensor(grey).expand(-1, 3, -1, -1))
    one = replace(tiny, channels=1, mean=(0.5,), std=(0.5,))
    assert torch.equal(load(one, "train", root=tmp_path).images, tensor(grey))


def test_image_folders(files, tiny, tmp_path):
    pixels = files.pixels(3)
    for name, image in zip(("cat", "dog", "emu"), pixels, strict=True):
        folder = tmp_path / "tiny/train" / name
        folder.mkdir(parents=True)
        (folder / "1.PNG").write_bytes(files.encode(image))
        (folder / "notes.txt").write_text("not an image")
    data = load(tiny, "train", root=tmp_path)
    assert torch.equal(data.images, tensor(pixels))
    assert (data.labels.tolist(), data.class_names) == ([0, 1, 2], ("cat", "dog", "emu"))
    (tmp_path / "tiny/test/cat").mkdir(parents=True)
    (tmp_path / "tiny/test/cat/1.png").write_bytes(files.encode(pixels[0]))
    with pytest.raises(DataError, match=r"other class folders.*1 instead of 3.*dog, emu"):
        load(tiny, "test", root=tmp_path)
    (tmp_path / "tiny/train/fox").mkdir()
    with pytest.raises(DataError, match="fox holds no image"):
        load(tiny, "train", root=tmp_path)


def test_digits_need_no_file():
    train, test = load("digits", "train"), load("digits", "test")
    assert {split: len(data) for split, data in (("train", train), ("test", test))} == spec_of("digits").sizes
    assert (train.images.amin(), train.images.amax()) == (0, 255)
    scaled = train.images.double() / 255
    assert scaled.mean().item() == pytest.approx(spec_of("digits").mean[0], abs=1e-3)
    assert scaled.std().item() == pytest.approx(spec_of("digits").std[0], abs=1e-3)
    assert test.labels.bincount(minlength=10).min() > 20


# --- what is kept decoded ------------------------------------------------------------------------------


def test_decoded_images_are_kept_and_forgotten_when_the_source_changes(files, tiny, tmp_path, monkeypatch):
    path = files.parquet(tmp_path / "tiny/train.parquet", files.pixels(10), LABELS, names=["a", "b", "c"])
    first = load(tiny, "train", root=tmp_path)
    assert [p.name for p in path.parent.iterdir() if p != path] == [".train.decoded.safetensors"]
    with monkeypatch.context() as patch:
        patch.setattr("iam_lab.data.image_set.decode_all", None)  # not called
        again = load(tiny, "train", root=tmp_path)
    assert torch.equal(again.images, first.images)
    assert torch.equal(again.labels, first.labels)
    assert (again.class_names, again.name) == (("a", "b", "c"), "tiny/train")
    other = files.pixels(10, seed=1)
    files.parquet(path, other, LABELS)
    os.utime(path, ns=(1, 1))
    assert torch.equal(load(tiny, "train", root=tmp_path).images, tensor(other))


@pytest.mark.parametrize("damage", [b"", b"rubbish", None])
def test_a_damaged_cache_is_made_again(files, tiny, tmp_path, damage):
    path = files.parquet(tmp_path / "tiny/train.parquet", files.pixels(10), LABELS)
    expected = load(tiny, "train", root=tmp_path).images.clone()
    cache = cache_path([path])
    cache.write_bytes(cache.read_bytes()[:-5] if damage is None else damage)
    assert torch.equal(load(tiny, "train", root=tmp_path).images, expected)
    assert cache.stat().st_size > 1000


def test_a_full_disk_costs_only_the_cache(files, tiny, tmp_path, monkeypatch):
    path = files.parquet(tmp_path / "tiny/train.parquet", files.pixels(10), LABELS)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("iam_lab.data.decoded.os.replace", full)
    assert len(load(tiny, "train", root=tmp_path)) == 10
    assert list(path.parent.iterdir()) == [path]
    monkeypatch.undo()
    load(tiny, "train", root=tmp_path, keep_decoded=False)
    assert list(path.parent.iterdir()) == [path]


def test_what_killed_runs_left_is_cleared_away(files, tiny, tmp_path):
    path = files.parquet(tmp_path / "tiny/train.parquet", files.pixels(10), LABELS)
    old, new = (
        cache_path([path]).with_name(f"{cache_path([path]).name}.{age}.part") for age in ("old", "new")
    )
    for part in (old, new):
        part.write_bytes(b"half")
    os.utime(old, (1, 1))
    load(tiny, "train", root=tmp_path)
    assert not old.exists()
    assert new.exists()  # another run may be writing it


# --- errors --------------------------------------------------------------------------------------------


def test_missing_files_say_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(DataError) as caught:
        load("cifar10", "train", root=tmp_path)
    for part in ("cifar10/train is not in", f"{tmp_path}/cifar10/train.parquet", "iam data get cifar10",
                 "uoft-cs/cifar10", "plain_text/", "build_datasets.py"):  # fmt: skip
        assert part in str(caught.value)
    monkeypatch.setenv("IAM_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"svhn/test is not in IAM_DATA {tmp_path}"):
        load("svhn", "test")
    with pytest.raises(DataError, match="has no split 'val'; it has train, test"):
        load("svhn", "val")
    with pytest.raises(DataError, match=r"no data set 'minst'. Did you mean mnist"):
        load("minst", "train")
    with pytest.raises(DataError, match=r"imagenet holds images of many sizes.*stream"):
        load("imagenet", "train")


def test_columns_that_are_not_there(files, tiny, tmp_path):
    pa_table = pa.table({"label": LABELS})
    path = tmp_path / "tiny/train.parquet"
    path.parent.mkdir()
    pa.parquet.write_table(pa_table, path)
    with pytest.raises(DataError, match=r"train.parquet has no image column.*Found label: int64"):
        load(tiny, "train", root=tmp_path)
    pa.parquet.write_table(pa.table({"img": [files.encode(files.pixels(1)[0])], "label": ["cat"]}), path)
    with pytest.raises(DataError, match=r"no label column of integers. Found img: binary, label: string"):
        load(tiny, "train", root=tmp_path)


def broken_png(files):
    whole = files.encode(files.pixels(1)[0])
    return {
        "truncated": whole[: len(whole) // 2],
        "not an image": b"hello",
        "empty": b"",
        "absent": None,
        "flipped": whole[:40] + bytes([whole[40] ^ 255]) + whole[41:],
    }


@pytest.mark.parametrize("kind", ["truncated", "not an image", "empty", "absent", "flipped"])
def test_a_corrupt_image_is_named_by_file_and_row(files, tiny, tmp_path, kind):
    images = [*files.pixels(10)]
    images[7] = broken_png(files)[kind]
    files.parquet(tmp_path / "tiny/train.parquet", images, LABELS)
    with pytest.raises(DataError, match=r"tiny/train.parquet, row 7: "):
        load(tiny, "train", root=tmp_path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 100, "half", "tail"])
def test_a_damaged_file_is_named(files, tiny, tmp_path, content):
    path = files.parquet(tmp_path / "tiny/train.parquet", files.pixels(10), LABELS)
    whole = path.read_bytes()
    if content == "half":
        content = whole[: len(whole) // 2]
    if content == "tail":
        content = whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :]
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"train\.parquet"):
        load(tiny, "train", root=tmp_path)


@pytest.mark.parametrize(
    ("wrong", "message"), [(3, "row 5: the label is 3; tiny has 3"), (-1, "row 5: the label is -1")]
)
def test_labels_out_of_range(files, tiny, tmp_path, wrong, message):
    labels = [*LABELS]
    labels[5] = wrong
    files.parquet(tmp_path / "tiny/train.parquet", files.pixels(10), labels)
    with pytest.raises(DataError, match=message):
        load(tiny, "train", root=tmp_path)


def test_labels_that_are_missing(files, tiny, tmp_path):
    files.parquet(
        tmp_path / "tiny/train.parquet", files.pixels(10), [None if i == 6 else 0 for i in range(10)]
    )
    with pytest.raises(DataError, match=r"row 6: the label \(label\) is missing"):
        load(tiny, "train", root=tmp_path)


def test_an_empty_split(files, tiny, tmp_path):
    files.parquet(tmp_path / "tiny/train.parquet", files.pixels(0), [])
    with pytest.raises(DataError, match=r"tiny/train is empty: .*train.parquet holds no rows"):
        load(tiny, "train", root=tmp_path)


def test_an_image_of_another_size(files, tiny, tmp_path):
    images = [*files.pixels(10)]
    images[4] = np.zeros((9, 7, 3), dtype=np.uint8)
    files.parquet(tmp_path / "tiny/train.parquet", images, LABELS)
    with pytest.raises(DataError, match="row 4: the image is 9 x 7 pixels, expected 8 x 8"):
        load(tiny, "train", root=tmp_path)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 3, 8, 8), torch.zeros(2, dtype=torch.int64), "expected images uint8"),
        (torch.zeros(2, 8, 8, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), "expected images uint8"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64), "one int64 label"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2), "one int64 label"),
        (torch.zeros(0, 3, 8, 8, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64), "is empty"),
    ],
)
def test_wrong_shapes(images, labels, message):
    with pytest.raises(DataError, match=message):
        ImageSet(images, labels, 3)


def test_jpeg_is_read_as_pillow_reads_it(files, tiny, tmp_path):
    encoded = [files.encode(image, "JPEG") for image in files.pixels(10)]
    files.parquet(tmp_path / "tiny/train.parquet", encoded, LABELS)
    import io

    expected = np.stack([np.asarray(Image.open(io.BytesIO(e))) for e in encoded])
    assert torch.equal(load(tiny, "train", root=tmp_path).images, tensor(expected))


def test_importing_is_light():
    heavy = ["torchvision", "pyarrow", "matplotlib", "huggingface_hub", "sklearn", "PIL", "scipy"]
    code = (
        "import sys; from iam_lab.data import load, DeviceData, CATALOGUE; import iam_lab.data.augment.named\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    code = (
        "import sys; from iam_lab.data import CATALOGUE, DataSpec, DataError; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
