"""Where the encoded images of a split come from: parquet files, or an image folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from torch import Tensor

from iam_lab.data.catalogue import DataSpec
from iam_lab.data.errors import DataError
from iam_lab.data.files import find_folder, find_parquet, missing
from iam_lab.data.folder import FolderImages
from iam_lab.data.parquet import ParquetImages


class Source(Protocol):
    """Encoded images and their labels."""

    def __len__(self) -> int: ...

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, where known."""

    @property
    def group_sizes(self) -> list[int]:
        """Number of consecutive images that are read together, group by group."""

    def expect_window(self, groups: int) -> None:
        """Reads will go back and forth between so many groups for a while."""

    def where(self, index: int) -> str:
        """File and row of an image, for messages."""

    def labels(self) -> Tensor:
        """All labels, int64 ``[N]``."""

    def encoded(self, index: int) -> bytes:
        """One encoded image."""

    def in_order(self) -> Iterator[tuple[int, Sequence[bytes | None]]]:
        """All encoded images in pieces, each with the index of its first."""


def open_source(spec: DataSpec, split: str, root: str | os.PathLike[str] | None = None) -> Source:
    """The split as parquet files or else as an image folder, with labels that are all in range.

    Args:
        spec: the data set.
        split: "train" or "test".
        root: folder of the data sets; by default ``IAM_DATA``.
    """
    source: Source
    if paths := find_parquet(spec, split, root):
        source = ParquetImages(paths, spec.label)
    elif folder := find_folder(spec, split, root):
        train = find_folder(spec, "train", root)
        names = FolderImages(train).class_names if train and train != folder else None
        source = FolderImages(folder, names)
    else:
        raise DataError(missing(spec, split, root))
    if len(source) == 0:
        raise DataError(f"{spec.name}/{split} is empty: {paths[0]} holds no rows.")
    _check_labels(spec, source)
    return source


def _check_labels(spec: DataSpec, source: Source) -> None:
    labels = source.labels()
    wrong = ((labels < 0) | (labels >= spec.classes)).nonzero().flatten()
    if len(wrong):
        first = int(wrong[0])
        more = f", and {len(wrong) - 1} more rows" if len(wrong) > 1 else ""
        raise DataError(
            f"{source.where(first)}: the label is {int(labels[first])}{more}; "
            f"{spec.name} has {spec.classes} classes, 0 to {spec.classes - 1}."
        )
