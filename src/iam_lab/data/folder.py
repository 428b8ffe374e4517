"""Images as files in a folder for each class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from iam_lab.data.errors import DataError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm"})


class FolderImages:
    """``<root>/<class>/*.jpg``: classes are numbered in the order of their folders' names.

    Args:
        root: the folder of a split.
        classes: names of the class folders, where they must be these (those of the training split).

    >>> FolderImages(Path("/nowhere"))
    Traceback (most recent call last):
        ...
    iam_lab.data.errors.DataError: There is no folder /nowhere.
    """

    def __init__(self, root: Path, classes: Sequence[str] | None = None) -> None:
        if not root.is_dir():
            raise DataError(f"There is no folder {root}.")
        self.root = root
        found = sorted(path.name for path in root.iterdir() if path.is_dir() and path.name[0] != ".")
        if classes is not None and list(classes) != found:
            odd = sorted(set(classes) ^ set(found))
            raise DataError(
                f"{root} has other class folders than expected ({len(found)} instead of {len(classes)}); "
                f"only on one side: {', '.join(odd[:5])}."
            )
        self._paths: list[str] = []  # relative strings: a million Path objects weigh half a gigabyte
        labels: list[int] = []
        for label, name in enumerate(found):
            images = sorted(p.name for p in (root / name).iterdir() if p.suffix.lower() in SUFFIXES)
            if not images:
                raise DataError(
                    f"The class folder {root / name} holds no image ({', '.join(sorted(SUFFIXES))})."
                )
            self._paths += [f"{name}/{image}" for image in images]
            labels += [label] * len(images)
        if not found:
            raise DataError(f"{root} has no class folders; expected {root}/<class>/*.jpg.")
        self._labels = torch.tensor(labels)
        self._names = tuple(found)

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the folders."""
        return self._names

    @property
    def group_sizes(self) -> list[int]:
        """One: every file is read alone."""
        return [1] * len(self)

    def expect_window(self, groups: int) -> None:
        """Nothing to prepare: files are read one by one in any order."""

    def where(self, index: int) -> str:
        """The file of an image."""
        return str(self.root / self._paths[index])

    def labels(self) -> Tensor:
        """All labels, int64 ``[N]``."""
        return self._labels

    def encoded(self, index: int) -> bytes:
        """The content of a file."""
        try:
            return (self.root / self._paths[index]).read_bytes()
        except OSError as error:
            raise DataError(f"{self.where(index)} cannot be read: {error.strerror}.") from error

    def in_order(self) -> Iterator[tuple[int, list[bytes]]]:
        """All files, a few hundred at a time."""
        step = 500
        for first in range(0, len(self), step):
            yield first, [self.encoded(index) for index in range(first, min(first + step, len(self)))]
