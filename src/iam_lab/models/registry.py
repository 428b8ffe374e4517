"""Every model by its name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from torch import nn

from iam_lab.lazy import require
from iam_lab.models.mlp import MLP
from iam_lab.models.resnet18 import ResNet18
from iam_lab.models.six_cnn import SixCNN
from iam_lab.models.wide_resnet import WideResNet

WIDE_RESNET = re.compile(r"wrn-(\d+)-(\d+)")
TIMM = "timm:"


def build_model(
    name: str, *, classes: int, channels: int = 3, image_size: int = 32, **options: Any
) -> nn.Module:
    """A new model, with freshly drawn weights.

    Args:
        name: one of :func:`model_names`, any other ``wrn-DEPTH-WIDTH``, or ``timm:NAME`` for any model of
            timm.
        classes: number of outputs.
        channels: of the images.
        image_size: height and width of the images; what a timm model expects otherwise is overridden.
        **options: further arguments of the model: ``dropout`` and ``extra_block`` of a wide residual
            network, ``hidden`` and ``activation`` of an MLP, anything ``timm.create_model`` takes.

    >>> import torch
    >>> build_model("wrn-10-1", classes=7, channels=1)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 7])
    >>> build_model("wrn-16", classes=10)
    Traceback (most recent call last):
        ...
    ValueError: There is no model 'wrn-16'. Did you mean wrn-16-8, ...
    """
    if classes < 1 or channels < 1 or image_size < 1:
        raise ValueError(
            "classes, channels and image_size are positive numbers; "
            f"found classes={classes}, channels={channels}, image_size={image_size}."
        )
    if name.startswith(TIMM):
        return _timm(name, classes, channels, image_size, options)
    if wide := WIDE_RESNET.fullmatch(name):
        options = {"depth": int(wide[1]), "width": int(wide[2]), **options}
        return _call(name, WideResNet, classes=classes, channels=channels, **options)
    if name not in BUILDERS:
        raise ValueError(_unknown(name))
    return _call(name, BUILDERS[name], classes=classes, channels=channels, image_size=image_size, **options)


def model_names() -> list[str]:
    """The names that stand for one model each; ``wrn-DEPTH-WIDTH`` and ``timm:NAME`` name more.

    >>> "wrn-16-8" in model_names()
    True
    """
    return sorted([*BUILDERS, "wrn-16-8", "wrn-28-2", "wrn-28-8", "wrn-28-10"])


def _six_cnn(classes: int, channels: int, image_size: int) -> nn.Module:
    return SixCNN(classes, channels, image_size)


def _resnet18(classes: int, channels: int, image_size: int, width: int = 64) -> nn.Module:
    return ResNet18(classes, channels, width=width)


def _mlp(
    classes: int, channels: int, image_size: int, hidden: tuple[int, ...] = (70, 70), activation: Any = "relu"
) -> nn.Module:
    return MLP((channels * image_size * image_size, *hidden, classes), activation)


def _vit_tiny_4(classes: int, channels: int, image_size: int, **options: Any) -> nn.Module:
    """ViT-T with patches of 4 pixels: 5,362,762 weights for ten classes and images [3, 32, 32]."""
    options = {"patch_size": 4, "drop_path_rate": 0.1, **options}
    return _create(
        "vit-tiny-4", "vit_tiny_patch16_224", classes, channels, options | {"img_size": image_size}
    )


def _mixer_tiny_4(classes: int, channels: int, image_size: int, **options: Any) -> nn.Module:
    """MLP-Mixer-T with patches of 4 pixels: 5,447,306 weights for ten classes and images [3, 32, 32]."""
    mixer = require("timm.models.mlp_mixer", extra="vision", purpose="The model 'mixer-tiny-4'")
    options = {"embed_dim": 256, "num_blocks": 10, "mlp_ratio": (0.5, 4.0), "drop_path_rate": 0.1, **options}
    model: nn.Module = mixer.MlpMixer(
        num_classes=classes, in_chans=channels, img_size=image_size, patch_size=4, **options
    )
    return model


BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "6cnn": _six_cnn,
    "mixer-tiny-4": _mixer_tiny_4,
    "mlp": _mlp,
    "resnet18-cifar": _resnet18,
    "vit-tiny-4": _vit_tiny_4,
}
"""Name to what builds it; each takes ``classes``, ``channels`` and ``image_size`` beside its own options."""


def _timm(name: str, classes: int, channels: int, image_size: int, options: dict[str, Any]) -> nn.Module:
    timm = require("timm", extra="vision", purpose=f"The model {name!r}")
    wanted = name.removeprefix(TIMM)
    if not timm.is_model(wanted):
        raise ValueError(_unknown(name, [TIMM + found for found in timm.list_models()]))
    expected = timm.get_pretrained_cfg(wanted)
    if expected is not None and tuple(expected.input_size[1:]) != (image_size, image_size):
        try:  # models with position embeddings or token mixing are built for one image size ...
            return _create(name, wanted, classes, channels, options | {"img_size": image_size})
        except TypeError as error:  # ... convolutional ones take any and do not know the argument
            if "img_size" not in str(error):
                raise
    return _create(name, wanted, classes, channels, options)


def _create(name: str, timm_name: str, classes: int, channels: int, options: dict[str, Any]) -> nn.Module:
    timm = require("timm", extra="vision", purpose=f"The model {name!r}")
    model: nn.Module = timm.create_model(timm_name, num_classes=classes, in_chans=channels, **options)
    return model


def _call(name: str, builder: Callable[..., nn.Module], **arguments: Any) -> nn.Module:
    known = inspect.signature(builder).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    unknown = [argument for argument in arguments if argument not in known]
    if unknown and not open_ended:
        own = [option for option in known if option not in ("classes", "channels", "image_size")]
        raise ValueError(
            f"The model {name!r} has no option {unknown[0]!r}; it has {', '.join(own) or 'none'}."
        )
    return builder(**arguments)


def _unknown(name: str, candidates: list[str] | None = None) -> str:
    near = get_close_matches(name, candidates or model_names(), n=4, cutoff=0.5)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    return (
        f"There is no model {name!r}.{hint} "
        f"Known are {', '.join(model_names())}, any other wrn-DEPTH-WIDTH, "
        "and timm:NAME for any model of timm."
    )
