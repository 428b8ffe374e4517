"""The network of a config: what it is made of, and what its weights start from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from iam_lab.data.catalogue import DataSpec
from iam_lab.errors import RecipeError
from iam_lab.models import MLP, Encoder, build_model
from iam_lab.recipes.schema import Config
from iam_lab.runs.checkpoint import load_weights
from iam_lab.train.numerics import field

HEAD = "head."
"""What the names of an encoder's weights begin with where they are not its features'."""


def build_network(config: Config, spec: DataSpec, image_size: int) -> nn.Module:
    """The network that a run of this config trains, its weights freshly drawn, on the CPU.

    Args:
        config: of the run; in SimCLR the encoder has the projector for a head.
        spec: of its data.
        image_size: height and width of the images that it sees.
    """
    with field("model", config.model.options):
        model = build_model(
            config.model.name,
            classes=spec.classes,
            channels=spec.channels,
            image_size=image_size,
            **config.model.options,
        )
    if config.task == "simclr":
        if not isinstance(model, Encoder):
            raise RecipeError(
                f"model.name: {config.model.name} has no features to put a projector on; choose a network "
                "of this package, such as resnet18-cifar or wrn-16-2."
            )
        model.head = MLP((model.feature_size, *config.simclr.projector))
    return model


def network_to_train(config: Config, spec: DataSpec, image_size: int, device: torch.device) -> nn.Module:
    """The same with the weights that the config names, if it names any, on the device."""
    model = build_network(config, spec, image_size)
    if config.model.weights is not None:
        start_from(model, Path(config.model.weights))
    layout = torch.channels_last if config.training.channels_last else torch.contiguous_format
    return model.to(device=device, memory_format=layout)  # type: ignore[call-overload, no-any-return]


def start_from(model: nn.Module, path: Path) -> None:
    """Load weights; a head that is not the file's stays as it was drawn.

    An encoder's head is whatever is called so, a classifier or a projector: what SimCLR has learned goes on
    with few labels. Of other models it is the one part that does not fit.
    """
    given, wanted = load_weights(path), model.state_dict()
    encoder = isinstance(model, Encoder)
    if encoder and _shapes(given, HEAD) != _shapes(wanted, HEAD):
        given, wanted = (
            {n: w for n, w in part.items() if not n.startswith(HEAD)} for part in (given, wanted)
        )
    unfit = [name for name in wanted if name not in given or given[name].shape != wanted[name].shape]
    extra = [name for name in given if name not in wanted]
    parts = {name.rpartition(".")[0] for name in unfit}
    if extra or len(parts) > (0 if encoder else 1):
        name = (extra or unfit)[0]
        raise RecipeError(
            f"model.weights: {path} does not fit the model: {name!r} is "
            f"{'not in it' if extra else 'missing or of another shape'}."
        )
    model.load_state_dict({name: given[name] for name in wanted if name not in unfit}, strict=False)


def _shapes(weights: Mapping[str, Tensor], prefix: str) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in weights.items() if name.startswith(prefix)}
