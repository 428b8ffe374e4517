"""What ``iam measure`` is pointed at: a run, a file of weights, a timm or a Transformers model."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from iam_lab.data.catalogue import DataSpec
from iam_lab.errors import RecipeError, RunError
from iam_lab.measure.images import Preparation
from iam_lab.measure.pretrained import of_timm, of_transformers
from iam_lab.measure.weights import SUFFIXES, fill, load_into
from iam_lab.models import build_model
from iam_lab.recipes.schema import Config
from iam_lab.runs import checkpoint
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
        preparation: of its images.
        divergence: between two outputs; None for those of a classifier.
    """

    model: nn.Module
    described: str
    preparation: Preparation = field(default_factory=Preparation)
    divergence: Divergence | None = None


def run_config(target: str) -> Config | None:
    """The config of a run, where ``target`` is its folder or one of the two files of weights in it."""
    folder = _run_folder(target)
    header = folder.config_file
    if not header.is_file():
        return None
    try:
        content = json.loads(header.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{header} cannot be read: {error}.") from error
    return folder.config() if "recipe" in content else None


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
        target: a run folder, a file of weights, ``timm:NAME``, or a Transformers name or folder.
        spec: the data set it will see.
        model: what the weights of a file belong to, as in a recipe.
        config: of a run, where ``target`` is its folder or one of its files.
        pretrained: False for freshly drawn weights of a timm model.
    """
    path = Path(target)
    if config is not None:
        return _of_run(_run_folder(target), path, config, spec)
    if path.is_file():
        return _of_file(path, model, spec)
    if target.startswith("timm:"):
        return Target(*of_timm(target.removeprefix("timm:"), spec, pretrained))
    if not path.exists() and (path.suffix in SUFFIXES or path.is_absolute()):
        raise RunError(f"There is no file {target}.")
    return Target(*of_transformers(target))


def _run_folder(target: str) -> RunFolder:
    """The folder that ``target`` is, or is a checkpoint of."""
    path = Path(target)
    beside = RunFolder(path.parent)
    return beside if path in (beside.checkpoint, beside.best) and path.is_file() else RunFolder(path)


def _of_run(folder: RunFolder, path: Path, config: Config, spec: DataSpec) -> Target:
    size = config.data.image_size or spec.image_size
    model = build_network(config, spec, size)
    if path == folder.checkpoint:
        state = checkpoint.load(path, config, "cpu")["trainer"]
        averaged = state["average"] is not None
        fill(model, state["average"] if averaged else state["model"], path)
        told = f"{path.name}, epoch {state['epoch']}{', averaged' if averaged else ''}"
    elif folder.best.exists():
        load_into(model, folder.best)
        told = folder.best.name
    else:
        raise RunError(
            f"{folder.path} has no {folder.best.name} yet; measure {folder.checkpoint} once it is there."
        )
    described = f"{config.model.name} of {folder.path} ({told})"
    return Target(model, described, Preparation(size=(size, size)), divergence_of(config))


def _of_file(path: Path, model: str | None, spec: DataSpec) -> Target:
    if model is None:
        raise RecipeError(
            f"{path} holds weights alone: say of which model with --model, as in --model wrn-16-8."
        )
    built = build_model(model, classes=spec.classes, channels=spec.channels, image_size=spec.image_size)
    return Target(built, f"{model} with {load_into(built, path)}")
