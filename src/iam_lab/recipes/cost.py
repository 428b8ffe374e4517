"""What a run costs before it is run: forward passes a step, and floating-point operations in all.

A plain step is three forward passes' worth (a backward counts as two). Operations are those that
``torch.utils.flop_counter`` counts (a multiply-add is two), in evaluation mode; a test counts them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from iam_lab.data.catalogue import spec_of
from iam_lab.recipes.schema import Config, Objective

PLAIN_PASSES = 3

FORWARD_FLOPS: Mapping[tuple[str, bool, int, int], int] = MappingProxyType(
    {
        # model, extra block, channels, image size: for one image, ten classes (ImageNet: a thousand)
        ("6cnn", False, 1, 28): 21_151_184,
        ("6cnn", False, 3, 32): 28_805_072,
        ("mixer-tiny-4", False, 3, 32): 756_552_704,
        ("mlp", False, 1, 8): 20_160,
        ("resnet18-cifar", False, 3, 32): 1_110_845_440,
        ("timm:resnet50", False, 3, 224): 8_178_368_512,
        ("timm:vit_small_patch16_224", False, 3, 224): 9_197_004_288,
        ("timm:vit_small_patch32_224", False, 3, 224): 2_285_819_904,
        ("vit-tiny-4", False, 3, 32): 730_215_168,
        ("wrn-10-1", False, 1, 8): 1_527_040,
        ("wrn-16-8", False, 3, 32): 3_096_291_328,
        ("wrn-16-8", True, 3, 32): 4_908_230_656,
        ("wrn-28-2", False, 3, 32): 428_706_304,
        ("wrn-28-2", True, 3, 32): 541_952_512,
        ("wrn-28-8", False, 3, 32): 6_720_169_984,
        ("wrn-28-10", False, 1, 28): 8_028_398_592,
        ("wrn-28-10", False, 3, 32): 10_486_657_536,
    }
)
"""The last layer's share at a hundred classes instead of ten is below one part in ten thousand, and left out."""


def step_passes(objective: Objective) -> int:
    """Forward passes' worth of one training step, as the tests of the objectives count them.

    >>> step_passes(Objective("plain")), step_passes(Objective("iam-d", 0.1, 1.0, steps=1))
    (3, 9)
    >>> step_passes(Objective("iam-d", 0.1, 1.0, options={"start": "carry"}))
    6
    """
    carried = objective.options.get("start") == "carry"
    ascent = 3 * (objective.steps if objective.steps is not None else 0 if carried else 1)
    lean = 1 if objective.options.get("lean") else 0
    extra = {"worst": 2, "ascent": 2}.get(str(objective.options.get("sign")), 0)
    passes = {
        "plain": PLAIN_PASSES,
        "sam": 6,
        "asam": 6,
        "iam-s": 4 + ascent + extra,
        "iam-d": 6 + ascent + lean + extra,
    }
    return passes[objective.name]


def step_image_passes(config: Config) -> int:
    """Forward passes' worth of one training step, counted over all its images.

    With few labels the objective sees those without a label too, where it has a use for them. FixMatch adds
    a forward and a backward pass of the strong views; SimCLR has two views of every image.

    >>> step_image_passes(Config())
    384
    """
    images = config.training.batch_size
    if config.task == "simclr":
        images *= 2
    elif config.task == "fixmatch" or (
        config.task == "semi-supervised" and config.objective.name in ("iam-d", "iam-s")
    ):
        images += config.semi.batch_size
    strong = PLAIN_PASSES * config.semi.batch_size if config.task == "fixmatch" else 0
    return step_passes(config.objective) * images + strong


def equivalent_epochs(config: Config) -> float:
    """The length of the training in passes over the data that plain training would make for the same cost.

    >>> from iam_lab.recipes import find_recipe
    >>> equivalent_epochs(find_recipe("tab1-cifar10-iam-d").config)
    600.0
    """
    return image_passes(config) / train_images(config) / PLAIN_PASSES


def train_images(config: Config) -> int:
    """How many images are trained on."""
    kept = round(spec_of(config.data.name).sizes["train"] * (1 - config.data.validation))
    return kept if config.data.train_images is None else min(kept, config.data.train_images)


def examples(config: Config) -> int:
    """How many images are seen in all, each as often as it is; with few labels those that have one."""
    if config.training.steps is not None:
        return config.training.steps * config.training.batch_size
    if config.task in ("semi-supervised", "fixmatch"):
        semi = config.semi
        pool = train_images(config) - (0 if semi.include_labelled else semi.labels or 0)
        return config.training.epochs * (pool // semi.batch_size) * config.training.batch_size
    return config.training.epochs * train_images(config)


def image_passes(config: Config) -> float:
    """Forward passes' worth of the whole training, counted over all images."""
    return examples(config) / config.training.batch_size * step_image_passes(config)


def training_flops(config: Config) -> float | None:
    """Operations of one run, evaluation and measurement left out; None for a model not counted.

    >>> from iam_lab.recipes import find_recipe
    >>> f"{training_flops(find_recipe('tab1-cifar10-sgd').config):.3g}"
    '9.29e+16'
    """
    spec = spec_of(config.data.name)
    size = config.data.image_size or spec.image_size
    extra_block = bool(config.model.options.get("extra_block"))
    forward = FORWARD_FLOPS.get((config.model.name, extra_block, spec.channels, size))
    return None if forward is None else float(forward) * image_passes(config)
