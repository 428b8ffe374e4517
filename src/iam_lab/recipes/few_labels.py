"""The fields of a recipe that learns with few labels or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from iam_lab.errors import RecipeError

TaskName: TypeAlias = Literal["supervised", "semi-supervised", "fixmatch", "simclr"]

OF_TASKS: Mapping[str, tuple[TaskName, ...]] = MappingProxyType(
    {
        "semi": ("semi-supervised", "fixmatch"),
        "fixmatch": ("fixmatch",),
        "simclr": ("simclr",),
        "probe": ("simclr",),
        "evaluation.train_images": ("supervised", "semi-supervised", "fixmatch"),
    }
)
"""Group or field of a config to the tasks that read it; all others are everybody's."""


def reads(task: TaskName, path: str) -> bool:
    """Whether a task looks at the field at a dotted path.

    >>> reads("supervised", "semi.labels"), reads("fixmatch", "semi.labels")
    (False, True)
    """
    readers = _readers(path)
    return readers is None or task in readers


def refuse_unread(task: TaskName, changed: Iterable[str]) -> None:
    """Refuse a change that would change nothing: of a field that the task never looks at.

    >>> refuse_unread("supervised", ["optimizer.lr", "semi.labels"])
    Traceback (most recent call last):
        ...
    iam_lab.errors.RecipeError: semi.labels is set, but the task 'supervised' never looks at it ...
    """
    for path in changed:
        readers = _readers(path)
        if readers is not None and task not in readers:
            raise RecipeError(
                f"{path} is set, but the task {task!r} never looks at it ({', '.join(map(repr, readers))} "
                f"{'do' if len(readers) > 1 else 'does'}): leave it out, or set task as well."
            )


def _readers(path: str) -> tuple[TaskName, ...] | None:
    """The tasks that look at a field, None for all."""
    return OF_TASKS.get(path, OF_TASKS.get(path.partition(".")[0]))


@dataclass(frozen=True)
class SemiSupervised:
    """Which images have labels, and how many without join a step.

    Attributes:
        labels: number of labelled images, equally many of every class, drawn by the run's seed.
        batch_size: images without label a step; ``training.batch_size`` counts those with.
        include_labelled: whether the labelled images are also among those used without their labels.
    """

    labels: int | None = None
    batch_size: int = 384
    include_labelled: bool = False


@dataclass(frozen=True)
class FixMatch:
    """The loss on images without labels; their weak view is augmented as ``data.augment`` says.

    Attributes:
        strong: augmentation of the strong view.
        threshold: a weak view more certain than this makes a label for the strong one.
        weight: of the loss on strong views.
        mean_over: all images of the batch, as published, or those alone that got a label.
        halve_rho_after: so many steps, from which on the radius is half as large, as in the released code.
    """

    strong: str = "fixmatch-strong"
    threshold: float = 0.95
    weight: float = 1.0
    mean_over: Literal["all", "chosen"] = "all"
    halve_rho_after: int | None = None


@dataclass(frozen=True)
class SimCLR:
    """Contrastive learning of two views, each augmented as ``data.augment`` says.

    Attributes:
        temperature: of the NT-Xent loss and of the divergence.
        projector: width of the hidden layer and number of outputs of the projection head.
        axis: what the divergence compares: rows of the ``similarity`` matrix, or each ``projection``.
    """

    temperature: float = 0.5
    projector: tuple[int, ...] = (512, 128)
    axis: Literal["similarity", "projection"] = "similarity"


@dataclass(frozen=True)
class Probe:
    """The linear classifier on frozen features by which an encoder is judged, at every evaluation.

    Attributes:
        epochs: passes over the features of all training images.
        batch_size: features a step.
        lr: of AdamW.
        weight_decay: likewise.
    """

    epochs: int = 20
    batch_size: int = 1024
    lr: float = 1e-3
    weight_decay: float = 0.01
