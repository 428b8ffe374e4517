"""Classifiers of Transformers: their images are those of their own processors."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from iam_lab.cli import main
from iam_lab.data import load, spec_of
from iam_lab.data.catalogue import DataSpec
from iam_lab.errors import RecipeError, RunError
from iam_lab.measure.images import Preparation
from iam_lab.measure.pretrained import PREPROCESSOR, preparation_of
from iam_lab.measure.targets import find_target

QUICK = ["--data", "digits", "--images", "20", "--measures", "s", "--restarts", "1"]
USUAL = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": 16, "width": 16},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}


def _saved(folder: Path, processor: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A tiny ViT as Transformers saves it."""
    transformers = pytest.importorskip("transformers")
    options = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.ViTConfig(
        **options, **{"image_size": 16, "patch_size": 8, "num_labels": 10} | changes
    )
    torch.manual_seed(0)
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    if processor is not None:
        (folder / PREPROCESSOR).write_text(json.dumps(processor))
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"resample": 3},
        {"resample": 0},
        {"resample": 3, "size": {"height": 6, "width": 6}},
        {"do_normalize": False},
        {"do_rescale": False},
        {"rescale_factor": 1 / 127.5},
        {"do_resize": False},
    ],
)
def test_images_are_those_of_the_processor(changes: dict[str, Any], tmp_path: Path) -> None:
    processor = USUAL | changes
    size = processor["size"]["height"] if processor["do_resize"] else 8
    spec, images = spec_of("digits"), load("digits", "test").images[:5]
    target = find_target(str(_saved(tmp_path, processor, image_size=size, patch_size=2)), spec)
    transformers = pytest.importorskip("transformers")
    own = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    pictures = [image.expand(3, -1, -1).permute(1, 2, 0).numpy() for image in images]
    expected = own(pictures, return_tensors="pt")["pixel_values"]
    found = target.preparation(images, spec)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)


def test_what_is_scaled_and_then_cut() -> None:
    model = SimpleNamespace(num_channels=3, image_size=None)
    usual = {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": 224}
    found = preparation_of(usual, model, "mine")
    assert (found.size, found.crop) == ((256, 256), (224, 224))
    found = preparation_of({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, model, "mine")
    assert (found.size, found.crop) == ((256, 256), (224, 224))
    found = preparation_of({"size": {"shortest_edge": 384}, "crop_pct": 1.0}, model, "mine")
    assert (found.size, found.crop) == ((384, 384), None)
    spec = spec_of("digits")
    cut = Preparation(size=(8, 8), crop=(4, 6), mean=(0.0,), std=(1.0,))
    images = load("digits", "test").images[:2]
    torch.testing.assert_close(cut(images, spec), images[..., 2:6, 1:7] / 255)


def test_without_a_processor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", str(_saved(tmp_path)), *QUICK, "--measures", "s,fisher"]) == 0
    shown = capsys.readouterr().out
    assert "lambda_max(F)" in shown
    assert "no preprocessor_config.json: mean and std are .5" in shown


@pytest.mark.parametrize("processor", [None, USUAL | {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}])
def test_a_model_of_grey_images(processor: dict[str, Any] | None, tmp_path: Path) -> None:
    folder = _saved(tmp_path / "grey", processor, num_channels=1)
    out = tmp_path / "found.json"
    assert main(["measure", str(folder), *QUICK, "--out", str(out)]) == 0
    content = json.loads(out.read_text())
    assert content["model"]["images"] == [1, 16, 16]
    assert content["model"]["preparation"]["mean"] == [0.5]


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (USUAL | {"do_flip_channel_order": True}, "asks for do_flip_channel_order"),
        (USUAL | {"image_mean": [0.1, 0.2]}, "image_mean of its preprocessor_config.json has 2 numbers"),
        (USUAL | {"size": {"height": 24, "width": 16}}, "does not take images [2, 3, 24, 16] of digits"),
    ],
)
def test_a_processor_that_does_not_fit(
    processor: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["measure", str(_saved(tmp_path, processor)), *QUICK]) == 1
    assert message in capsys.readouterr().err


def test_the_hub_is_asked_for_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    folder = _saved(tmp_path, USUAL)
    load_model = transformers.AutoModelForImageClassification.from_pretrained
    monkeypatch.setattr(
        transformers.AutoModelForImageClassification, "from_pretrained", lambda name: load_model(folder)
    )
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda name, file: str(folder / file))
    target = find_target("somebody/vit", spec_of("digits"))
    assert target.preparation.mean == pytest.approx(tuple(USUAL["image_mean"]))  # type: ignore[arg-type]

    def offline(name: str, file: str) -> str:
        raise FileNotFoundError(file)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", offline)
    target = find_target("somebody/vit", spec_of("digits"))
    assert target.preparation.mean == (0.5,) * 3
    assert "mean and std are .5" in target.described


def test_no_classifier_of_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text("{}")
    assert main(["measure", str(tmp_path), *QUICK]) == 1
    assert "no image classifier of Transformers" in capsys.readouterr().err


def test_grey_images_are_repeated_and_colour_is_not_dropped() -> None:
    spec, images = spec_of("digits"), load("digits", "test").images[:3]
    wide = Preparation((0.5,) * 3, (0.5,) * 3, channels=3, size=(16, 16))
    assert wide(images, spec).shape == (3, 3, 16, 16)
    colour: DataSpec = spec_of("cifar10")
    with pytest.raises(RecipeError, match="takes images of 1 channel, those of cifar10 have 3"):
        Preparation((0.5,), (0.5,), channels=1)(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), colour)


def test_a_damaged_processor_is_told(tmp_path: Path) -> None:
    folder = _saved(tmp_path)
    (folder / PREPROCESSOR).write_text("{")
    with pytest.raises(RunError, match="is no JSON"):
        find_target(str(folder), spec_of("digits"))
