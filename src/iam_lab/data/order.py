"""The order of an epoch of streamed images, and where in it a run is: the same for any number of workers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Generator, Tensor

Key = tuple[int, int]
"""Epoch and index of an image: what its augmentation is seeded with."""


class EpochOrder:
    """Keys of an epoch, in batches; a batch sampler for a ``DataLoader``.

    Images that are stored in groups are read in groups. To shuffle them well and read each group about
    once, the groups are shuffled first, and then the images within a window that slides over them.

    Args:
        group_sizes: number of images in each group, in the order of the images.
        batch_size: images a batch.
        seed: of all orders.
        shuffle: otherwise the order of the images.
        drop_last: leave out an incomplete last batch.
        window: number of images that are shuffled together; groups of one image are shuffled all together.

    Attributes:
        epoch: whose order is iterated.
        samples: how many images of it were already seen; iterating starts after them.

    >>> order = EpochOrder([2, 2, 1], batch_size=2, seed=0, shuffle=False)
    >>> list(order)
    [[(0, 0), (0, 1)], [(0, 2), (0, 3)]]
    >>> order.samples = 2
    >>> list(order)
    [[(0, 2), (0, 3)]]
    """

    def __init__(
        self,
        group_sizes: Sequence[int],
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        window: int = 4096,
    ) -> None:
        self.group_sizes = list(group_sizes)
        self.total = sum(self.group_sizes)
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.window = window
        self.epoch = 0
        self.samples = 0

    def __len__(self) -> int:
        """Number of batches that are left of this epoch."""
        full, rest = divmod(self.total - self.samples, self.batch_size)
        return full + (1 if rest and not self.drop_last else 0)

    def __iter__(self) -> Iterator[list[Key]]:
        """Batches of keys, from ``samples`` on."""
        epoch, batches = self.epoch, len(self)
        indices = self.indices()[self.samples :].tolist()
        for start in range(0, batches * self.batch_size, self.batch_size):
            yield [(epoch, index) for index in indices[start : start + self.batch_size]]

    def indices(self) -> Tensor:
        """All indices in the order of this epoch, int64 ``[N]``."""
        if not self.shuffle:
            return torch.arange(self.total)
        generator = Generator().manual_seed(seed_of(self.seed, self.epoch))
        if len(self.group_sizes) == self.total:
            return torch.randperm(self.total, generator=generator)
        starts = [0, *accumulate(self.group_sizes)]
        groups = torch.randperm(len(self.group_sizes), generator=generator).tolist()
        indices = torch.cat([torch.arange(starts[group], starts[group + 1]) for group in groups])
        window = torch.arange(self.total) // self.window
        inside = torch.rand(self.total, generator=generator, dtype=torch.float64)
        return indices[(window + inside).argsort()]

    def groups_in_window(self) -> int:
        """How many groups a window can touch."""
        smallest = sorted(self.group_sizes)
        touched = 2 + sum(total < self.window for total in accumulate(smallest))
        return min(touched, len(smallest))


def seed_of(*numbers: int) -> int:
    """A seed that depends on every number, and is unrelated for numbers that differ by one.

    >>> seed_of(0, 1) == seed_of(0, 1), seed_of(0, 1) == seed_of(1, 0)
    (True, False)
    """
    text = ",".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1
