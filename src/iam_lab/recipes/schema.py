"""What a recipe is: frozen, typed values, nothing else; importing this loads no PyTorch.

A :class:`Config` is all that a run depends on, so two runs of one config are the same run. A
:class:`Recipe` is a config with a name, what it reproduces of the paper, and which of its values the paper
leaves unstated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Literal, TypeAlias

from iam_lab.errors import RecipeError
from iam_lab.recipes.few_labels import FixMatch, Probe, SemiSupervised, SimCLR, TaskName
from iam_lab.recipes.paper import PaperNumber, number
from iam_lab.recipes.typed import field_types

Value: TypeAlias = bool | int | float | str | tuple[int | float, ...] | None
Options: TypeAlias = Mapping[str, Value]
"""Further named arguments of a model, an optimizer or a schedule; on the command line ``name=value ...``."""

ObjectiveName: TypeAlias = Literal["plain", "sam", "asam", "iam-d", "iam-s"]

HAVE: Mapping[str, tuple[ObjectiveName, ...]] = MappingProxyType(
    {
        "rho": ("sam", "asam", "iam-d", "iam-s"),
        "beta": ("iam-d",),
        "steps": ("iam-d", "iam-s"),
        "eta": ("asam",),
    }
)
"""Field of an objective to those that have it."""


@dataclass(frozen=True)
class Model:
    """The network.

    Attributes:
        name: as :func:`iam_lab.models.build_model` knows it: ``wrn-16-8``, ``6cnn``, ``timm:NAME``.
        options: further arguments of the model, such as ``extra_block=True``.
        weights: a safetensors file to start from; a head of another number of classes, or SimCLR's projector
            in place of a classifier, is drawn anew.
    """

    name: str = "wrn-16-8"
    options: Options = field(default_factory=dict)
    weights: str | None = None


@dataclass(frozen=True)
class Data:
    """What the network sees.

    Attributes:
        name: of the catalogue, see ``iam data list``.
        augment: name of the training augmentation; evaluation uses none.
        validation: share of the training images held out, by a draw that is the same for all seeds.
        train_images: use only so many training images (after the validation split); all by default.
        image_size: scale images to this height and width on the device; their own size by default.
        workers: processes that decode streamed data; what fits into memory needs none.
    """

    name: str = "cifar10"
    augment: str = "crop-flip"
    validation: float = 0.0
    train_images: int | None = None
    image_size: int | None = None
    workers: int = 8


@dataclass(frozen=True)
class Objective:
    """What is descended along; a field that an objective does not have is None.

    Attributes:
        name: the objective.
        rho: the radius (all but ``plain``).
        beta: the weight of S (``iam-d``).
        steps: K, ascent steps (``iam-d``, ``iam-s``).
        eta: of the adaptive metric (``asam``).
        sub_batch: m, the size of independent sub-batches; the whole batch by default.
        options: further arguments of the class in ``torch_iam``, such as ``start=carry``.
        norms_and_biases: whether delta moves BatchNorm's weights and biases too.
    """

    name: ObjectiveName = "plain"
    rho: float | None = None
    beta: float | None = None
    steps: int | None = None
    eta: float | None = None
    sub_batch: int | None = None
    options: Options = field(default_factory=dict)
    norms_and_biases: bool = True

    def __post_init__(self) -> None:
        for name in ("rho", "beta", "steps", "eta"):
            if getattr(self, name) is not None and self.name not in HAVE[name]:
                raise RecipeError(
                    f"objective.{name} is {getattr(self, name)}, but {self.name!r} has no {name} "
                    f"({', '.join(HAVE[name])} have): set it to None."
                )
        if self.rho is None and self.name in HAVE["rho"]:
            raise RecipeError(f"objective.rho is missing: {self.name!r} needs a radius.")


@dataclass(frozen=True)
class Optimizer:
    """The optimizer.

    Attributes:
        name: a class of ``torch.optim``.
        lr: the learning rate that the schedule scales.
        weight_decay: on all weights, or without norms and biases.
        decay_norms_and_biases: whether BatchNorm's weights and all biases decay too.
        options: its further arguments, such as ``momentum=0.9``.
    """

    name: str = "SGD"
    lr: float = 0.1
    weight_decay: float = 5e-4
    decay_norms_and_biases: bool = True
    options: Options = field(default_factory=lambda: {"momentum": 0.9})


@dataclass(frozen=True)
class Schedule:
    """The learning rate over the training, set before every step.

    Attributes:
        name: ``constant``, ``multistep``, ``cosine`` (half a wave down to ``final``), ``cosine-7-16`` (the
            first 7/16 of half a wave, as in FixMatch), ``linear`` (down to ``final``), or a class of
            ``torch.optim.lr_scheduler``, which then takes ``options``.
        milestones: shares of the training (after the warm-up) at which the rate is multiplied with ``gamma``.
        gamma: of ``multistep``.
        warmup_steps: steps in which the rate rises linearly from zero.
        final: the last rate, as a share of the first.
        options: arguments of a scheduler of torch.
        every: when a scheduler of torch steps.
    """

    name: str = "multistep"
    milestones: tuple[float, ...] = (0.3, 0.6, 0.8)
    gamma: float = 0.2
    warmup_steps: int = 0
    final: float = 0.0
    options: Options = field(default_factory=dict)
    every: Literal["step", "epoch"] = "step"


@dataclass(frozen=True)
class Training:
    """How long and in what numbers.

    Attributes:
        epochs: passes over the training images.
        steps: optimizer steps in all; where given, ``epochs`` does not count.
        steps_per_epoch: what counts as an epoch (a line of metrics, a checkpoint) where it is not a pass.
        batch_size: examples an optimizer step.
        label_smoothing: in the loss only, never in the divergence.
        clip_norm: largest norm of the gradient.
        accumulate: parts of the batch whose gradients are added up, to save memory.
        ema: decay of an exponential moving average of the weights, which is then what is evaluated.
        precision: ``bf16`` and ``fp16`` are autocast, ``fp16`` with a GradScaler.
        channels_last: memory layout of images and filters.
        compile: the model through ``torch.compile``.
        cuda_graph: whole steps as one CUDA graph, on a GPU.
        deterministic: only algorithms that give the same bits every time.
        patience: so many steps in a row that are not finite end the run.
    """

    epochs: int = 200
    steps: int | None = None
    steps_per_epoch: int | None = None
    batch_size: int = 128
    label_smoothing: float = 0.1
    clip_norm: float | None = None
    accumulate: int = 1
    ema: float | None = None
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    channels_last: bool = False
    compile: bool = False
    cuda_graph: bool = False
    deterministic: bool = False
    patience: int = 25


@dataclass(frozen=True)
class Evaluation:
    """When the error is taken.

    Attributes:
        every: epochs between evaluations; the last epoch always has one.
        batch_size: images a forward pass.
        train_images: also evaluate on so many training images without augmentation; -1 for all.
    """

    every: int = 1
    batch_size: int = 1000
    train_images: int = 0


@dataclass(frozen=True)
class Measurement:
    """S_rho and the largest eigenvalue of the Fisher matrix on held-out images, along the training.

    Attributes:
        every: epochs between measurements, 0 for none; the last epoch always has one where there are any.
        images: how many images, the first ones of ``split``; -1 for all.
        split: where they come from.
        rho: the radius.
        steps: K.
        restarts: independent starts.
        fisher: measure lambda_max(F) too.
        hessian: measure lambda_max(H) and Tr(H) too, which need labels.
        tolerance: relative residual of the eigenvalues.
        batch_size: images a forward pass.
    """

    every: int = 0
    images: int = 5000
    split: Literal["test", "validation", "train"] = "test"
    rho: float = 0.1
    steps: int = 3
    restarts: int = 3
    fisher: bool = True
    hessian: bool = False
    tolerance: float = 0.01
    batch_size: int = 500


@dataclass(frozen=True)
class Config:
    """All that a run depends on; ``task`` is what is learned, by :func:`iam_lab.train.task.build_task`."""

    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    objective: Objective = field(default_factory=Objective)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    training: Training = field(default_factory=Training)
    evaluation: Evaluation = field(default_factory=Evaluation)
    measurement: Measurement = field(default_factory=Measurement)
    semi: SemiSupervised = field(default_factory=SemiSupervised)
    fixmatch: FixMatch = field(default_factory=FixMatch)
    simclr: SimCLR = field(default_factory=SimCLR)
    probe: Probe = field(default_factory=Probe)
    task: TaskName = "supervised"
    seed: int = 0


@dataclass(frozen=True)
class Cell:
    """The place of the paper that a recipe fills.

    Attributes:
        label: of the table or figure, as in LaTeX.
        dataset: as in :mod:`iam_lab.recipes.paper`.
        method: likewise.
        cell: what else the table varies, ``"K=2 m=32"``.
        metric: the paper's, ``"error"``.
        ours: where the number is in ``summary.json``: ``best.test_error``, ``last.test_top5_error``, ...
        model: likewise where a table has several.
    """

    label: str
    dataset: str
    method: str
    cell: str = ""
    metric: str = "error"
    ours: str = "best.test_error"
    model: str | None = None

    @property
    def paper(self) -> PaperNumber | None:
        """The paper's number; None for a picture, whose values are not in its source.

        >>> Cell("tab:1", "cifar10", "iam-d").paper.mean
        3.28
        """
        try:
            return number(self.label, self.dataset, self.method, self.cell, self.metric, self.model)
        except ValueError:
            return None


@dataclass(frozen=True)
class Recipe:
    """A named config.

    Attributes:
        name: for the command line and for the run's folder.
        config: what is run.
        cells: what it reproduces.
        seeds: how many seeds the paper has, 0 to seeds - 1.
        unstated: field of the config to why its value was chosen, for what the paper does not say.
        note: what a reader should know.

    >>> Recipe("mine", Config(), unstated={"objective.rhoo": "a guess"})
    Traceback (most recent call last):
        ...
    iam_lab.errors.RecipeError: mine marks 'objective.rhoo' as unstated, which is no field of a config.
    """

    name: str
    config: Config
    cells: tuple[Cell, ...] = ()
    seeds: int = 3
    unstated: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        for path in self.unstated:
            if path not in _paths() and not path.partition(".options.")[1]:
                raise RecipeError(f"{self.name} marks {path!r} as unstated, which is no field of a config.")


@cache
def _paths() -> frozenset[str]:
    """Every field of a config, found once: a grid of the paper has hundreds of recipes."""
    return frozenset(field_types(Config))
