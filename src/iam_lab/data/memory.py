"""Batches of data that lies on the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Generator, Tensor

from iam_lab.data.errors import DataError
from iam_lab.data.image_set import ImageSet

View = TypeVar("View")
"""What augmentation makes of a batch: a tensor, or a tuple of several views."""


class DeviceData(Generic[View]):
    """Epochs of augmented batches of an :class:`ImageSet`, without leaving the device.

    Iterating yields the rest of the current epoch, batch by batch. What :meth:`state_dict` holds continues
    bit for bit, in the middle of an epoch too: two random streams, one for the order of the images (on the
    CPU, so that it is the same on every device) and one for augmentation (on the device).

    Args:
        data: images and labels, already on the device where batches are wanted.
        batch_size: images a batch.
        augment: uint8 images ``[B, C, H, W]`` and a generator to what the model takes, for example a
            :class:`~iam_lab.data.augment.Pipeline`.
        seed: of both streams.
        shuffle: a new order every epoch; otherwise the order of ``data``.
        drop_last: leave out an incomplete last batch.
        over_ends: let a batch go on over the end of a pass, so that no image is ever left out and a batch may
            even have more images than there are. An epoch then is as many passes as fill whole batches.

    Attributes:
        epoch: number of epochs completed.
        position: number of batches of the current epoch already yielded.

    >>> from iam_lab.data.augment import Normalize, Pipeline
    >>> images = ImageSet(torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.arange(10), classes=10)
    >>> batches = DeviceData(images, 4, Pipeline((), Normalize((0.5,), (0.5,))), seed=0)
    >>> [tuple(x.shape) for x, y in batches]
    [(4, 1, 8, 8), (4, 1, 8, 8)]
    >>> batches.epoch, len(batches)
    (1, 2)
    """

    def __init__(
        self,
        data: ImageSet,
        batch_size: int,
        augment: Callable[[Tensor, Generator], View],
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        over_ends: bool = False,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is at least 1; found {batch_size}.")
        if drop_last and not over_ends and batch_size > len(data):
            raise DataError(
                f"{data.name} has {len(data)} images, not one batch of {batch_size}. "
                "Choose a smaller batch_size, drop_last=False, or over_ends=True."
            )
        self.data = data
        self.batch_size = batch_size
        self.augment = augment
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.passes = batch_size // math.gcd(batch_size, len(data)) if over_ends else 1
        self.epoch = 0
        self.position = 0
        self._order = Generator().manual_seed(seed)
        # Another seed than the order's: the same one would tie what is drawn to when it is drawn.
        self._draws = Generator(data.images.device).manual_seed(_second_seed(seed))
        self._order_at_start = self._order.get_state()

    def __len__(self) -> int:
        """Number of batches of an epoch."""
        full, rest = divmod(len(self.data) * self.passes, self.batch_size)
        return full + (1 if rest and not self.drop_last else 0)

    @property
    def samples_per_epoch(self) -> int:
        """Number of images that an epoch shows."""
        return len(self) * self.batch_size if self.drop_last else len(self.data) * self.passes

    def __iter__(self) -> Iterator[tuple[View, Tensor]]:
        """The rest of this epoch."""
        self._order.set_state(self._order_at_start)
        order = self._indices()
        while True:
            start = self.position * self.batch_size
            batch = self.batch(order[start : start + self.batch_size])
            self.position += 1  # before the batch is used: a state saved while it is counts it as seen
            if self.position == len(self):
                self.epoch, self.position = self.epoch + 1, 0
                self._order_at_start = self._order.get_state()
            yield batch
            if self.position == 0:
                return

    def forever(self) -> Iterator[tuple[View, Tensor]]:
        """Batches of this epoch and all that follow."""
        while True:
            yield from self

    def batch(self, indices: Tensor) -> tuple[View, Tensor]:
        """Augmented images and labels at ``indices`` (int64 ``[B]``, on the device)."""
        images = self.data.images.index_select(0, indices)
        return self.augment(images, self._draws), self.data.labels.index_select(0, indices)

    def state_dict(self) -> dict[str, Any]:
        """Where the data is: epoch, position in it, and both random streams."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "order": self._order_at_start.clone(),
            "draws": self._draws.get_state(),
            "layout": self._layout(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of data of the same size and batch size."""
        if state["layout"] != self._layout():
            raise DataError(
                f"The saved state belongs to {state['layout']}, this data is {self._layout()}: "
                "the order of the images would be another one. Resume with the same data and batch size."
            )
        self.epoch = int(state["epoch"])
        self.position = int(state["position"])
        self._order_at_start = state["order"].clone().cpu()
        self._draws.set_state(state["draws"].cpu())

    def _indices(self) -> Tensor:
        """The order of an epoch on the device, brought there in one piece and without waiting for a GPU."""
        device, count = self.data.images.device, len(self.data)
        if not self.shuffle:
            return torch.arange(count, device=device).repeat(self.passes)
        # From memory that may be swapped out the CPU would copy only once all steps before are done.
        order = torch.empty((self.passes, count), dtype=torch.int64, pin_memory=device.type == "cuda")
        for row in order:
            torch.randperm(count, generator=self._order, out=row)
        return order.flatten().to(device, non_blocking=True)

    def _layout(self) -> dict[str, int | bool]:
        return {
            "images": len(self.data),
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "passes": self.passes,
        }


def _second_seed(seed: int) -> int:
    return int(torch.randint(2**62, (), generator=Generator().manual_seed(seed)))
