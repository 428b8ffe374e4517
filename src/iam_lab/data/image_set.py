"""A split in memory: one uint8 tensor of images and one of labels."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from iam_lab.data import decoded, files
from iam_lab.data.catalogue import DataSpec, spec_of
from iam_lab.data.decode import decode_all
from iam_lab.data.digits import digits
from iam_lab.data.errors import DataError
from iam_lab.data.source import open_source


@dataclass(frozen=True)
class ImageSet:
    """Images and labels of a split.

    Attributes:
        images: uint8 ``[N, C, H, W]``.
        labels: int64 ``[N]``, from 0 to ``classes - 1``.
        classes: number of classes.
        class_names: their names, where the source says them.
        name: data set and split, for messages.

    >>> data = ImageSet(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 1, 2]), classes=3)
    >>> len(data), data.subset([1, 2]).labels.tolist()
    (4, [1, 1])
    """

    images: Tensor
    labels: Tensor
    classes: int
    class_names: tuple[str, ...] | None = None
    name: str = "images"

    def __post_init__(self) -> None:
        shapes = f"images {self.images.dtype} {tuple(self.images.shape)}, labels {tuple(self.labels.shape)}"
        if self.images.ndim != 4 or self.images.dtype != torch.uint8:
            raise DataError(f"{self.name}: expected images uint8 [N, C, H, W]; found {shapes}.")
        if self.labels.shape != self.images.shape[:1] or self.labels.dtype != torch.int64:
            raise DataError(f"{self.name}: expected one int64 label an image; found {shapes}.")
        if len(self) == 0:
            raise DataError(f"{self.name} is empty: there is no image in it.")

    def __len__(self) -> int:
        return len(self.images)

    def subset(self, indices: Tensor | Sequence[int]) -> ImageSet:
        """The images at ``indices``, in that order."""
        chosen = torch.as_tensor(indices, dtype=torch.int64, device=self.images.device)
        return replace(self, images=self.images[chosen], labels=self.labels[chosen])

    def to(self, device: torch.device | str) -> ImageSet:
        """The same images on a device."""
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))


def load(
    name: str | DataSpec,
    split: str,
    *,
    root: str | os.PathLike[str] | None = None,
    keep_decoded: bool = True,
) -> ImageSet:
    """A split of a data set in memory.

    Args:
        name: of the catalogue, or a specification of your own.
        split: "train" or "test".
        root: folder of the data sets; by default ``IAM_DATA``.
        keep_decoded: write the decoded images beside their source, for a faster next start.

    >>> train = load("digits", "train")
    >>> tuple(train.images.shape), train.classes
    ((1437, 1, 8, 8), 10)
    """
    spec = spec_of(name) if isinstance(name, str) else name
    label = f"{spec.name}/{split}"
    if spec.name == "digits":
        return ImageSet(*digits(spec, split), spec.classes, tuple("0123456789"), label)
    if spec.streamed:
        raise DataError(
            f"{spec.name} holds images of many sizes, too many for memory; stream it: iam_lab.data.Stream."
        )
    size = (spec.image_size, spec.image_size)
    paths = files.find_parquet(spec, split, root)
    key = decoded.fingerprint(paths, channels=spec.channels, size=size, label=spec.label)
    kept = decoded.read_cache(decoded.cache_path(paths), key) if paths else None
    if kept is not None:
        tensors, metadata = kept
        names = tuple(json.loads(metadata["class_names"])) or None
        return ImageSet(tensors["images"], tensors["labels"], spec.classes, names, label)
    source = open_source(spec, split, root)
    data = ImageSet(
        decode_all(source, spec.channels, size), source.labels(), spec.classes, source.class_names, label
    )
    if paths and keep_decoded:
        decoded.write_cache(
            decoded.cache_path(paths),
            key,
            {"images": data.images, "labels": data.labels},
            {"class_names": json.dumps(data.class_names or [])},
        )
    return data
