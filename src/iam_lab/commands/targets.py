"""What ``iam measure`` is pointed at: a run, a file of weights, a timm or a Transformers model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from iam_lab.data.catalogue import DataSpec
from iam_lab.errors import RecipeError, RunError
from iam_lab.lazy import require
from iam_lab.models import build_model
from iam_lab.recipes.schema import Config
from iam_lab.runs.checkpoint import load_weights
from iam_lab.runs.folder import RunFolder
from iam_lab.train.network import build_network
from iam_lab.train.objectives import divergence_of
from torch_iam.divergence import Divergence


@dataclass(frozen=True)
class Target:
    """A model with its weights, and the images that it expects.

    Attributes:
        model: on the CPU.
        described: in words, for the head of the table.
        image_size: height and width of its images; None for those of the data set.
        mean: of its normalisation; None for the data set's.
        std: likewise.
        divergence: between two outputs; None for those of a classifier.
    """

    model: nn.Module
    described: str
    image_size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    divergence: Divergence | None = None


def run_config(target: str) -> Config | None:
    """The config of a run folder, None where ``target`` is none."""
    header = Path(target) / "config.json"
    if not header.is_file():
        return None
    try:
        content = json.loads(header.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{header} cannot be read: {error}.") from error
    return RunFolder(Path(target)).config() if "recipe" in content else None


def find_target(
    target: str,
    spec: DataSpec,
    *,
    model: str | None = None,
    config: Config | None = None,
    pretrained: bool = True,
) -> Target:
    """The model that ``target`` names.

    Args:
        target: a run folder, a ``.safetensors`` file, ``timm:NAME``, or a Transformers name or folder.
        spec: the data set it will see.
        model: what the weights of a file belong to, as in a recipe.
        config: of a run folder.
        pretrained: False for freshly drawn weights of a timm model.
    """
    path = Path(target)
    if config is not None:
        return _of_run(RunFolder(path), config, spec)
    if path.is_file():
        if model is None:
            raise RecipeError(
                f"{path} holds weights alone: say of which model with --model, as in --model wrn-16-8."
            )
        built = build_model(model, classes=spec.classes, channels=spec.channels, image_size=spec.image_size)
        _load(built, path)
        return Target(built, f"{model} with {path}")
    if target.startswith("timm:"):
        return _of_timm(target.removeprefix("timm:"), spec, pretrained)
    return _of_transformers(target)


def _of_run(folder: RunFolder, config: Config, spec: DataSpec) -> Target:
    size = config.data.image_size or spec.image_size
    model = build_network(config, spec, size)
    _load(model, folder.best)
    described = f"{config.model.name} of {folder.path} (best.safetensors)"
    return Target(model, described, image_size=size, divergence=divergence_of(config))


def _load(model: nn.Module, path: Path) -> None:
    found = load_weights(path)
    try:
        model.load_state_dict(found)
    except RuntimeError as error:
        raise RunError(f"{path} does not fit the model: {str(error).splitlines()[-1].strip()}") from error


def _of_timm(name: str, spec: DataSpec, pretrained: bool) -> Target:
    timm = require("timm", extra="vision", purpose=f"the model timm:{name}")
    try:
        classes: dict[str, Any] = {} if pretrained else {"num_classes": spec.classes}
        model = timm.create_model(name, pretrained=pretrained, **classes)
    except Exception as error:  # no such model, no such weights, no connection: timm has no type for these
        raise RunError(f"timm:{name} cannot be made: {str(error).splitlines()[0]}") from error
    expected = timm.data.resolve_data_config({}, model=model)
    return Target(
        model,
        f"timm:{name}" + ("" if pretrained else " (untrained)"),
        image_size=expected["input_size"][-1],
        mean=tuple(expected["mean"]),
        std=tuple(expected["std"]),
    )


def _of_transformers(name: str) -> Target:
    transformers = require("transformers", extra="transformers", purpose=f"the model {name!r}")
    try:
        model = transformers.AutoModelForImageClassification.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise RunError(
            f"{name!r} is no run folder, no file, and no image classifier of Transformers: "
            f"{str(error).splitlines()[0]}"
        ) from error
    size = getattr(model.config, "image_size", None)
    return Target(
        model, name, image_size=size if isinstance(size, int) else None, mean=(0.5,) * 3, std=(0.5,) * 3
    )


def device_of(name: str | None) -> torch.device:
    """The device asked for, else a GPU where there is one."""
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
