"""Which images validate, which have labels: choices by seed, of indices."""

from __future__ import annotations

import torch
from torch import Tensor

from iam_lab.data.errors import DataError


def hold_out(count: int, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices to train on and indices to validate on, drawn without regard to the labels.

    Args:
        count: number of images, N.
        fraction: of the images that validate, rounded to a whole number of them.
        seed: of the draw.

    Shapes: two int64 vectors, sorted, together 0 to N - 1.

    >>> train, validation = hold_out(10, 0.2, seed=0)
    >>> len(train), len(validation)
    (8, 2)
    """
    held = round(count * fraction)
    if not 0 < held < count:
        raise DataError(
            f"A validation split of {fraction:.3g} of {count} images has {held}: "
            "both parts need at least one image. Choose a fraction like 0.1."
        )
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[held:].sort().values, order[:held].sort().values


def labelled_subset(labels: Tensor, count: int, classes: int, seed: int) -> Tensor:
    """Indices of ``count`` images whose labels are used, equally many of every class.

    Args:
        labels: of all images, ``[N]``.
        count: number of labelled images, a multiple of ``classes``.
        classes: number of classes.
        seed: of the draw.

    Shapes: sorted int64 ``[count]``.

    >>> labels = torch.tensor([0, 1, 0, 1, 0, 1])
    >>> labels[labelled_subset(labels, 4, classes=2, seed=0)].bincount()
    tensor([2, 2])
    """
    if count < 1:
        raise DataError(
            f"{count} labelled images are none to learn from: every one of the {classes} classes needs at least "
            f"one. Choose {classes}, or a multiple of it."
        )
    if count > len(labels):  # first: no multiple of the classes would do
        raise DataError(f"{count} labelled images were asked for; there are only {len(labels)} images.")
    each, rest = divmod(count, classes)
    if rest:
        near = (each * classes, (each + 1) * classes)
        choices = " or ".join(str(number) for number in near if 0 < number <= len(labels)) or classes
        raise DataError(
            f"{count} labelled images cannot be shared equally by {classes} classes. Choose {choices}."
        )
    labels = labels.cpu()
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= classes:
        raise DataError(
            f"Labels run from {lowest} to {highest}; those of {classes} classes are 0 to {classes - 1}."
        )
    available = torch.bincount(labels, minlength=classes)
    for label, found in enumerate(available.tolist()):
        if found < each:
            number = "no image" if found == 0 else f"only {found} images"
            raise DataError(
                f"Class {label} has {number}; {count} labels for {classes} classes need {each} of each."
            )
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator)
    chosen = [order[labels[order] == label][:each] for label in range(classes)]
    return torch.cat(chosen).sort().values


def unlabelled_subset(count: int, labelled: Tensor, *, include_labelled: bool = True) -> Tensor:
    """Indices of the images that are used without their labels.

    Args:
        count: number of all images, N.
        labelled: indices of the labelled ones.
        include_labelled: use these as well, without their labels, as the published FixMatch does.

    Shapes: sorted int64 ``[M]``.

    >>> unlabelled_subset(5, torch.tensor([1, 3]), include_labelled=False)
    tensor([0, 2, 4])
    """
    free = torch.ones(count, dtype=torch.bool)
    free[labelled] = include_labelled
    found = free.nonzero().flatten()
    if not len(found):
        raise DataError(
            f"No image is left without a label: all {count} are labelled. "
            "Take fewer labels, or use the labelled images as well (include_labelled=True)."
        )
    return found
