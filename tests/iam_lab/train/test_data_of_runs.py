"""Runs on files: streamed data trains and resumes; damaged data is named in one line."""

from __future__ import annotations

import io
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from tests.iam_lab.train.test_killed import left_behind

from iam_lab import cli
from iam_lab.data import DataSpec, catalogue
from iam_lab.errors import Interrupted, RecipeError
from iam_lab.recipes.schema import Config, Data, Evaluation, Measurement, Model, Training
from iam_lab.runs.folder import RunFolder
from iam_lab.train.data import build_data
from iam_lab.train.run import train
from iam_lab.train.trainer import Trainer


def picture(size: int, seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def write(path: Path, images: list[bytes], labels: list[int], label: str = "label") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    column = pa.array([{"bytes": image, "path": None} for image in images], kind)
    pq.write_table(pa.table({"img": column, label: pa.array(labels)}), path, row_group_size=4)


@pytest.fixture
def streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A data set that streams: images of several sizes, four classes."""
    spec = DataSpec(
        name="pictures",
        classes=4,
        channels=3,
        image_size=16,
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
        sizes={"train": 24, "test": 10},
        streamed=True,
    )
    monkeypatch.setattr(catalogue, "CATALOGUE", {**catalogue.CATALOGUE, "pictures": spec})
    monkeypatch.setenv("IAM_DATA", str(tmp_path / "data"))
    for split, count in spec.sizes.items():
        images = [picture(18 + index % 5, index) for index in range(count)]
        write(tmp_path / "data" / "pictures" / f"{split}.parquet", images, [i % 4 for i in range(count)])
    return Config(
        model=Model("wrn-10-1"),
        data=Data("pictures", augment="resized-crop-flip", workers=0),
        training=Training(epochs=2, batch_size=8),
        evaluation=Evaluation(batch_size=4, train_images=4),
        measurement=Measurement(every=2, images=6, restarts=1, steps=1, fisher=False),
    )


def test_streamed_run_resumes_with_the_right_sample(
    streamed: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(RunFolder(tmp_path / "quiet"), streamed, device="cpu")
    advance = Trainer.advance

    def advanced(trainer: Trainer) -> None:
        advance(trainer)
        if trainer.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "advance", advanced)
        with pytest.raises(Interrupted):
            train(RunFolder(tmp_path / "run"), streamed, device="cpu")
    train(RunFolder(tmp_path / "run"), streamed, device="cpu")
    assert left_behind(tmp_path / "run") == left_behind(tmp_path / "quiet")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Data("pictures", augment="crop-flip"), "data.augment must be 'resized-crop-flip'"),
        (
            Data("pictures", augment="resized-crop-flip", validation=0.1),
            "data.validation is for data in memory",
        ),
    ],
)
def test_streamed_recipes_that_cannot_be(streamed: Config, change: Data, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        build_data(replace(streamed, data=change), torch.device("cpu"))


def test_images_scaled_on_the_device() -> None:
    config = Config(data=Data("digits", augment="none", image_size=20), training=Training(batch_size=5))
    data = build_data(config, torch.device("cpu"))
    images, _ = next(data.train.forever())
    assert images.shape == (5, 1, 20, 20)
    assert data.image_size == 20


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("column", "train.parquet has no label column of integers"),
        ("image", "row 3: this image of 3 bytes is damaged"),
        ("label", "the label is 12"),
        ("truncated", "train.parquet"),
        ("absent", "fashion_mnist/test is not in IAM_DATA"),
    ],
)
def test_damaged_data_is_named(
    fault: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("IAM_DATA", str(tmp_path))
    images, labels = [picture(28, index) for index in range(8)], list(range(8))
    home = tmp_path / "fashion_mnist"
    for split in ("train", "test"):
        write(home / f"{split}.parquet", images, labels)
    train_file = home / "train.parquet"
    if fault == "column":
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        pq.write_table(pa.table({"img": pa.array([{"bytes": images[0], "path": None}], kind)}), train_file)
    elif fault == "image":
        write(train_file, [*images[:3], b"bad", *images[4:]], labels)
    elif fault == "label":
        write(train_file, images, [*labels[:-1], 12])
    elif fault == "truncated":
        train_file.write_bytes(train_file.read_bytes()[:300])
    else:
        (home / "test.parquet").unlink()
    status = cli.main(
        ["train", "tab1-fashion-mnist-sgd", "--root", str(tmp_path / "runs"), "--device", "cpu"]
    )
    told = capsys.readouterr().err
    assert status == 1
    assert message in told
    assert len(told.splitlines()) == 1
