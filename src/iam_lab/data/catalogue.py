"""The data sets the laboratory knows: what is in them, where they come from, how they are normalised."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from iam_lab.data.errors import DataError

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class DataSpec:
    """One data set.

    Attributes:
        name: the name in recipes and the folder under ``IAM_DATA``.
        classes: number of classes; labels are 0 to classes - 1.
        channels: 1 for grey images, 3 for colour.
        image_size: height and width a model sees.
        mean: of each channel, after scaling to [0, 1]; what normalisation subtracts.
        std: what normalisation divides by then. These are the numbers of the paper's released code.
        sizes: published number of images in each split. Splits are "train" and "test" everywhere; what a
            data set calls its evaluation split is in ``stems``.
        stems: split to the beginnings that its files (or its image folder) may have.
        repository: data set repository on the Hugging Face hub, where there is one.
        folder: where in that repository the parquet files lie.
        label: name of the label column, for files with several integer columns.
        streamed: too large for memory, or images of many sizes: read through a ``DataLoader``.
    """

    name: str
    classes: int
    channels: int
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    sizes: Mapping[str, int]
    stems: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"train": ("train",), "test": ("test",)}
    )
    repository: str | None = None
    folder: str = ""
    label: str = "label"
    streamed: bool = False

    def files_of(self, split: str) -> tuple[str, ...]:
        """Beginnings of the file names of ``split``."""
        if split not in self.sizes:
            raise DataError(
                f"{self.name} has no split {split!r}; it has {', '.join(self.sizes)}. "
                "A validation split is cut from train, see iam_lab.data.hold_out."
            )
        return self.stems[split]


CATALOGUE: Mapping[str, DataSpec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            DataSpec(
                name="cifar10",
                classes=10,
                channels=3,
                image_size=32,
                mean=(0.4914, 0.4822, 0.4465),
                std=(0.2023, 0.1994, 0.2010),
                sizes={"train": 50_000, "test": 10_000},
                repository="uoft-cs/cifar10",
                folder="plain_text",
            ),
            DataSpec(
                name="cifar100",
                classes=100,
                channels=3,
                image_size=32,
                mean=(0.5071, 0.4867, 0.4408),
                std=(0.2675, 0.2565, 0.2761),
                sizes={"train": 50_000, "test": 10_000},
                repository="uoft-cs/cifar100",
                folder="cifar100",
                label="fine_label",
            ),
            DataSpec(
                name="fashion_mnist",
                classes=10,
                channels=1,
                image_size=28,
                mean=(0.2860,),
                std=(0.3530,),
                sizes={"train": 60_000, "test": 10_000},
                repository="zalando-datasets/fashion_mnist",
                folder="fashion_mnist",
            ),
            DataSpec(
                name="svhn",
                classes=10,
                channels=3,
                image_size=32,
                mean=IMAGENET_MEAN,
                std=IMAGENET_STD,
                sizes={"train": 73_257, "test": 26_032},
                repository="ufldl-stanford/svhn",
                folder="cropped_digits",
            ),
            DataSpec(
                name="mnist",
                classes=10,
                channels=1,
                image_size=28,
                mean=(0.1307,),
                std=(0.3081,),
                sizes={"train": 60_000, "test": 10_000},
                repository="ylecun/mnist",
                folder="mnist",
            ),
            DataSpec(
                name="imagenet",
                classes=1000,
                channels=3,
                image_size=224,
                mean=IMAGENET_MEAN,
                std=IMAGENET_STD,
                sizes={"train": 1_281_167, "test": 50_000},
                # The labels of the real test split are not public: everybody evaluates on validation.
                stems={"train": ("train",), "test": ("validation", "val")},
                repository="ILSVRC/imagenet-1k",
                folder="data",
                streamed=True,
            ),
            DataSpec(
                name="digits",
                classes=10,
                channels=1,
                image_size=8,
                mean=(0.3053,),
                std=(0.3762,),
                sizes={"train": 1437, "test": 360},
            ),
        )
    }
)
"""Name to data set."""


def spec_of(name: str) -> DataSpec:
    """The data set called ``name``.

    >>> spec_of("cifar10").classes
    10
    >>> spec_of("cifar")
    Traceback (most recent call last):
        ...
    iam_lab.data.errors.DataError: There is no data set 'cifar'. Did you mean cifar10, cifar100? ...
    """
    if name not in CATALOGUE:
        near = get_close_matches(name, CATALOGUE, n=3, cutoff=0.5)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise DataError(f"There is no data set {name!r}.{hint} Known are {', '.join(CATALOGUE)}.")
    return CATALOGUE[name]


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder of all data sets: ``root``, else ``IAM_DATA``, else ``~/.cache/torch-iam/data``.

    >>> data_root("/data").as_posix()
    '/data'
    """
    chosen = root or os.environ.get("IAM_DATA")
    if chosen:
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "torch-iam" / "data"
