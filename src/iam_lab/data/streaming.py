"""Data too large for memory: decoded and augmented by workers, image by image, and resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from iam_lab.data.augment.normalize import Normalize
from iam_lab.data.catalogue import DataSpec
from iam_lab.data.decode import open_image
from iam_lab.data.errors import DataError
from iam_lab.data.order import EpochOrder, Key, seed_of
from iam_lab.data.source import Source
from iam_lab.lazy import require
from iam_lab.machine import cores

RESIZE = 256 / 224  # evaluation resizes to 256 pixels and cuts the central 224 out


class Stream:
    """Epochs of batches from files, as :class:`~iam_lab.data.DeviceData` gives them from memory.

    Training takes a random box of each image, resized, and flips it; evaluation the centre. An image's
    augmentation depends on the seed, the epoch and the image alone: any number of workers gives the same
    batches, and a resumed run the ones that the interrupted run would have seen.

    Args:
        source: encoded images, of :func:`~iam_lab.data.source.open_source`.
        spec: whose image size, mean and standard deviation count.
        batch_size: images a batch.
        train: shuffled and augmented, complete batches only; otherwise in order, all of them.
        seed: of order and augmentation.
        workers: processes that decode, by default one a processor and at most 16; 0 decodes here.
        device: where batches are wanted.
        channels_last: layout of the images there.
        window: how many images are shuffled together, when they are stored in groups. Every worker keeps
            about so many encoded images in memory.
        transform: instead of the above: a PIL image to a uint8 tensor ``[C, H, W]``.

    Attributes:
        epoch: number of epochs completed.
        samples: number of images of the current epoch already yielded.

    Shapes: yields float ``[B, C, H, W]`` and int64 ``[B]``.
    """

    def __init__(
        self,
        source: Source,
        spec: DataSpec,
        batch_size: int,
        *,
        train: bool,
        seed: int = 0,
        workers: int | None = None,
        device: torch.device | str = "cpu",
        channels_last: bool = False,
        window: int = 4096,
        transform: Callable[[Any], Tensor] | None = None,
    ) -> None:
        workers = min(cores(), 16) if workers is None else workers
        if batch_size < 1 or window < 1 or workers < 0:
            raise ValueError(
                "batch_size and window are at least 1, workers at least 0; "
                f"found batch_size={batch_size}, window={window}, workers={workers}."
            )
        if train and batch_size > len(source):
            raise DataError(
                f"{spec.name} has {len(source)} images, not one batch of {batch_size}. "
                "Choose a smaller batch_size."
            )
        self.device = torch.device(device)
        self.normalize = Normalize(spec.mean, spec.std, channels_last=channels_last)
        self._order = EpochOrder(
            source.group_sizes, batch_size, seed=seed, shuffle=train, drop_last=train, window=window
        )
        source.expect_window(self._order.groups_in_window() if train else 2)
        chosen = transform or image_transform(spec.image_size, train=train)
        self._loader: DataLoader[Any] = DataLoader(
            _Decoded(source, spec.channels, chosen, seed),
            batch_sampler=self._order,
            num_workers=workers,
            collate_fn=_as_it_is,
            pin_memory=self.device.type == "cuda",
            prefetch_factor=4 if workers else None,
            # Workers are seeded from here: without it each epoch would draw from the global random stream.
            generator=torch.Generator().manual_seed(seed),
        )
        self.epoch = 0
        self.samples = 0

    def __len__(self) -> int:
        """Number of batches of a whole epoch."""
        full, rest = divmod(self._order.total, self._order.batch_size)
        return full + (1 if rest and not self._order.drop_last else 0)

    @property
    def samples_per_epoch(self) -> int:
        """Number of images that an epoch shows."""
        return min(len(self) * self._order.batch_size, self._order.total)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The rest of this epoch."""
        self._order.epoch, self._order.samples = self.epoch, self.samples
        left = len(self._order)
        loading = iter(self._loader)
        try:
            for batch in loading:
                if isinstance(batch, DataError):
                    raise batch
                images, labels = (part.to(self.device, non_blocking=True) for part in batch)
                left -= 1
                # Before the batch is used: a state saved while it is counts it as seen.
                self.samples += len(labels)
                if left == 0:
                    self.epoch, self.samples = self.epoch + 1, 0
                yield self.normalize(images), labels
        finally:
            del loading  # its workers end now, not when a traceback that remembers them is forgotten

    def forever(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of this epoch and all that follow."""
        while True:
            yield from self

    def state_dict(self) -> dict[str, Any]:
        """Where the data is: epoch, and images of it already seen."""
        return {"epoch": self.epoch, "samples": self.samples, "layout": self._layout()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of the same data and seed; the batch size may be another one."""
        if state["layout"] != self._layout():
            raise DataError(
                f"The saved state belongs to {state['layout']}, this data is {self._layout()}: "
                "the order of the images would be another one. Resume with the same data, seed and window."
            )
        self.epoch, self.samples = int(state["epoch"]), int(state["samples"])
        if self._order.total - self.samples < self._order.batch_size and self._order.drop_last:
            self.epoch, self.samples = self.epoch + 1, 0  # saved with smaller batches: no whole one is left

    def _layout(self) -> dict[str, int | bool]:
        order = self._order
        return {"images": order.total, "seed": order.seed, "window": order.window, "shuffle": order.shuffle}


def image_transform(size: int, *, train: bool) -> Callable[[Any], Tensor]:
    """ImageNet's usual transforms of a PIL image to uint8 ``[C, size, size]``.

    Training: a random box of 8 to 100 % of the area, resized, and a flip. Evaluation: the shorter side
    resized to 256/224 of ``size``, and the centre.
    """
    v2 = require("torchvision.transforms.v2", extra="vision", purpose="Streaming images")
    if train:
        steps = [v2.RandomResizedCrop(size), v2.RandomHorizontalFlip()]
    else:
        steps = [v2.Resize(round(size * RESIZE)), v2.CenterCrop(size)]
    transform: Callable[[Any], Tensor] = v2.Compose([*steps, v2.PILToTensor()])
    return transform


class _Decoded(Dataset[Any]):
    """Whole batches of decoded, transformed images."""

    def __init__(self, source: Source, channels: int, transform: Callable[[Any], Tensor], seed: int) -> None:
        self.source = source
        self.channels = channels
        self.transform = transform
        self.seed = seed
        self.labels = source.labels()

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, key: Key) -> Tensor:
        epoch, index = key
        image = open_image(self.source.encoded(index), self.channels, self.source.where(index))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed_of(self.seed, epoch, index))
            return self.transform(image)

    def __getitems__(self, keys: Sequence[Key]) -> tuple[Tensor, Tensor] | DataError:
        """A batch; what is wrong with the data is handed over whole, since a worker would wrap it."""
        try:
            images = torch.stack([self[key] for key in keys])
        except DataError as error:
            return error
        return images, self.labels[[index for _, index in keys]]


def _as_it_is(batch: Any) -> Any:
    return batch
