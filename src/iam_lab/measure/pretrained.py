"""Models that others have trained, from timm and Transformers, and how their images are prepared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from iam_lab.data.catalogue import DataSpec
from iam_lab.errors import RunError, first_line
from iam_lab.lazy import require
from iam_lab.measure.images import Preparation, Size
from iam_lab.runs.files import read_json

PREPROCESSOR = "preprocessor_config.json"
MODES = {0: "nearest-exact", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers; its other filters are nearest to the last one."""

UNKNOWN_STEPS = ("do_flip_channel_order", "do_pad", "include_top", "rescale_offset")
"""Steps of some processors that are not done here."""

SMALL_CROP = 384
"""From here on ConvNeXt's processor scales to the size itself, instead of cutting it out of a larger image."""


def of_timm(name: str, spec: DataSpec, pretrained: bool) -> tuple[nn.Module, str, Preparation]:
    """A timm model, its description, its images."""
    timm = require("timm", extra="vision", purpose=f"the model timm:{name}")
    try:
        classes: dict[str, Any] = {} if pretrained else {"num_classes": spec.classes}
        model = timm.create_model(name, pretrained=pretrained, **classes)
    except Exception as error:  # no such model, no such weights, no connection: timm has no type for these
        raise RunError(f"timm:{name} cannot be made: {first_line(error)}") from error
    expected = timm.data.resolve_data_config({}, model=model)
    channels, height, width = expected["input_size"]
    preparation = Preparation(
        tuple(expected["mean"]), tuple(expected["std"]), channels=channels, size=(height, width)
    )
    return model, f"timm:{name}" + ("" if pretrained else " (untrained)"), preparation


def of_transformers(name: str) -> tuple[nn.Module, str, Preparation]:
    """An image classifier of Transformers, its description, its images."""
    transformers = require("transformers", extra="transformers", purpose=f"the model {name!r}")
    try:
        model = transformers.AutoModelForImageClassification.from_pretrained(name)
    except Exception as error:  # no such name, no connection, no such class, damaged weights
        raise RunError(
            f"{name!r} is no run folder, no file, and no image classifier of Transformers: {first_line(error)}"
        ) from error
    found = _preprocessor(name)
    told = name if found is not None else f"{name} (no {PREPROCESSOR}: mean and std are .5)"
    return model, told, preparation_of(found or {"resample": 3}, model.config, name)


def preparation_of(found: Mapping[str, Any], config: object, name: str) -> Preparation:
    r"""What a processor of Transformers does to images, by its own description.

    Its pixels are :math:`(f b - \mathrm{mean}) / \mathrm{std}` of bytes b, ours
    :math:`(b / 255 - \mathrm{mean}) / \mathrm{std}`: the same, with both numbers divided by 255 f.

    Args:
        found: what is in ``preprocessor_config.json``; what is not there is usual.
        config: the model's, for the channels, and the size where the processor does not say it.
        name: for messages.

    >>> from types import SimpleNamespace
    >>> grey = preparation_of({"size": 16, "do_normalize": False}, SimpleNamespace(num_channels=1), "mine")
    >>> grey.size, grey.mean, grey.std
    ((16, 16), (0.0,), (1.0,))
    """
    strange = [step for step in UNKNOWN_STEPS if found.get(step)]
    if strange:
        raise RunError(
            f"{name}: its {PREPROCESSOR} asks for {', '.join(strange)}, which iam measure does not do. Prepare "
            "the images with its own processor and call torch_iam.local_inconsistency(model, images, rho)."
        )
    channels = int(getattr(config, "num_channels", None) or 3)
    factor = 255 * found.get("rescale_factor", 1 / 255) if found.get("do_rescale", True) else 255.0
    mean, std = (0.0,) * channels, (1.0,) * channels
    if found.get("do_normalize", True):
        mean, std = (_per_channel(found, key, channels, name) for key in ("image_mean", "image_std"))
    size, crop = _sizes(found)
    return Preparation(
        tuple(number / factor for number in mean),
        tuple(number / factor for number in std),
        channels=channels,
        size=size or _size(getattr(config, "image_size", None)),
        crop=crop,
        mode=MODES.get(found.get("resample", 2), "bicubic"),
        of_bytes=True,
    )


def _preprocessor(name: str) -> dict[str, Any] | None:
    """What lies beside the weights, in a folder or on the hub."""
    path = Path(name) / PREPROCESSOR
    if not Path(name).is_dir():
        hub = require("huggingface_hub", extra="lab", purpose=f"the images of {name!r}")
        try:
            path = Path(hub.hf_hub_download(name, PREPROCESSOR))
        except (
            OSError,
            ValueError,
        ):  # the model has none, or it was never fetched and there is no connection
            return None
    return read_json(path) if path.is_file() else None


def _sizes(found: Mapping[str, Any]) -> tuple[Size | None, Size | None]:
    """Height and width to scale to, and to cut out then."""
    size = _size(found.get("size")) if found.get("do_resize", True) else None
    crop = _size(found.get("crop_size")) if found.get("do_center_crop") else None
    share = found.get("crop_pct")
    if size is None or not share or min(size) >= SMALL_CROP:
        return size, crop
    return (int(size[0] / share), int(size[1] / share)), crop or size


def _size(told: Any) -> Size | None:
    """Height and width; the images of a data set are square, so that an edge is as good.

    >>> _size({"height": 8, "width": 16}), _size({"shortest_edge": 8}), _size(8), _size(None)
    ((8, 16), (8, 8), (8, 8), None)
    """
    if isinstance(told, Mapping):
        edge = told.get("shortest_edge", told.get("longest_edge"))
        told = edge if edge is not None else (told.get("height"), told.get("width"))
    if isinstance(told, int):
        return told, told
    if isinstance(told, tuple | list) and len(told) == 2 and all(isinstance(part, int) for part in told):
        return told[0], told[1]
    return None


def _per_channel(found: Mapping[str, Any], key: str, channels: int, name: str) -> tuple[float, ...]:
    told = found.get(key)
    numbers = [0.5] if told is None else told if isinstance(told, list | tuple) else [told]
    if (
        len(set(numbers)) == 1
    ):  # a grey model is often saved with the three equal numbers of a processor's default
        return (float(numbers[0]),) * channels
    if len(numbers) != channels:
        raise RunError(
            f"{name}: {key} of its {PREPROCESSOR} has {len(numbers)} numbers, and the model takes {channels} "
            f"channel{'s' if channels != 1 else ''}. Write one for each."
        )
    return tuple(map(float, numbers))
