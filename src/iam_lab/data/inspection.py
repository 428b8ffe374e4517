"""Is a data set what it should be? Every image is decoded, everything is counted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from iam_lab.data.catalogue import DataSpec, spec_of
from iam_lab.data.decode import check_size, in_threads, open_image
from iam_lab.data.digits import digits
from iam_lab.data.errors import DataError
from iam_lab.data.files import find_folder, find_parquet
from iam_lab.data.source import Source, open_source
from iam_lab.lazy import require


@dataclass(frozen=True)
class SplitReport:
    """What was found in a split.

    Attributes:
        images: number of images.
        published: number of images that there should be.
        per_class: smallest and largest number of images of a class.
        mean: of each channel, between 0 and 1.
        std: of each channel.
        problems: what is wrong, empty for a good split.
    """

    name: str
    split: str
    images: int
    published: int
    per_class: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    problems: tuple[str, ...]


def location(name: str | DataSpec, split: str, root: str | os.PathLike[str] | None = None) -> list[Path]:
    """The files, or the folder, that hold a split; empty where it is not there (or needs no file).

    >>> location("digits", "train")
    []
    """
    spec = spec_of(name) if isinstance(name, str) else name
    folder = find_folder(spec, split, root)
    return find_parquet(spec, split, root) or ([folder] if folder else [])


def check(name: str | DataSpec, split: str, root: str | os.PathLike[str] | None = None) -> SplitReport:
    """Decode and count a split; what is wrong is in the report, not an exception.

    Args:
        name: of the catalogue, or a specification of your own.
        split: "train" or "test".
        root: folder of the data sets; by default ``IAM_DATA``.

    >>> report = check("digits", "test")
    >>> report.images, report.problems
    (360, ())
    """
    spec = spec_of(name) if isinstance(name, str) else name
    published = spec.sizes.get(split, 0)
    try:
        labels, mean, std = _counted(spec, split, root)
    except DataError as error:
        return SplitReport(spec.name, split, 0, published, (0, 0), (), (), (str(error),))
    counts = torch.bincount(labels, minlength=spec.classes)
    problems = []
    if len(labels) != published:
        problems.append(f"{len(labels)} images, {published} published")
    empty = (counts == 0).nonzero().flatten().tolist()
    if empty:
        problems.append(f"no image of {len(empty)} classes, among them {empty[0]}")
    per_class = int(counts.min()), int(counts.max())
    return SplitReport(spec.name, split, len(labels), published, per_class, mean, std, tuple(problems))


def _counted(
    spec: DataSpec, split: str, root: str | os.PathLike[str] | None
) -> tuple[Tensor, tuple[float, ...], tuple[float, ...]]:
    """Labels, and mean and standard deviation of each channel."""
    if spec.name == "digits":
        images, labels = digits(spec, split)
        total = _moments(images.permute(1, 0, 2, 3).flatten(1).numpy())
    else:
        source = open_source(spec, split, root)
        labels = source.labels()
        total = sum(in_threads(source, partial(_moments_of, source, spec)))
    count, first, second = total
    mean = first / count
    deviation = (second / count - mean**2).clip(min=0) ** 0.5
    return labels, tuple(mean.tolist()), tuple(deviation.tolist())


def _moments_of(source: Source, spec: DataSpec, first: int, images: Sequence[bytes | None]) -> Any:
    """Moments of a chunk of images, each decoded and of the right size."""
    numpy = require("numpy", extra="lab", purpose="Checking images")
    total = 0
    for row, encoded in enumerate(images):
        where = source.where(first + row)
        image = open_image(encoded, spec.channels, where)
        if not spec.streamed:
            check_size(image, (spec.image_size, spec.image_size), where)
        total = total + _moments(numpy.asarray(image).reshape(-1, spec.channels).T)
    return total


def _moments(pixels: Any) -> Any:
    """Count, sum and sum of squares of each channel, scaled to [0, 1], of bytes ``[C, pixels]``: ``[3, C]``."""
    numpy = require("numpy", extra="lab", purpose="Checking images")
    counts = numpy.stack([numpy.bincount(channel, minlength=256) for channel in pixels])
    values = numpy.arange(256) / 255
    return numpy.stack([counts.sum(1), counts @ values, counts @ values**2])
