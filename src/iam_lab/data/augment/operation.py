"""What every augmentation is: random numbers for each image, and a function of images and these numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Generic, TypeVar

import torch
from torch import Generator, Tensor

P = TypeVar("P")
"""Drawn parameters: a tensor, or a named tuple of tensors, with a value for every image."""


class Operation(ABC, Generic[P]):
    """An augmentation of a batch in which every image has its own draw.

    Images are uint8 ``[B, C, H, W]`` on any device, and stay there: no loop over images, and nothing is read
    back from the device. ``generator`` lives on the device of the images; the same state draws the same.
    """

    @abstractmethod
    def draw(self, images: Tensor, generator: Generator) -> P:
        """Parameters for every image of a batch of this shape and device."""

    @abstractmethod
    def apply(self, images: Tensor, drawn: P) -> Tensor:
        """The images under the drawn parameters."""

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Draw and apply."""
        # Tables, blends and fills count from 0 to 255: images in [0, 1] would come out black, in silence.
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise ValueError(
                f"{type(self).__name__} takes images uint8 [B, C, H, W]; found {str(images.dtype).split('.')[1]} "
                f"{list(images.shape)}. Augment bytes, before they are normalised: of images in [0, 1] "
                "(255 * images).round().to(torch.uint8), of a single one image[None]."
            )
        return self.apply(images, self.draw(images, generator))


def uniform(images: Tensor, generator: Generator, low: float = 0.0, high: float = 1.0) -> Tensor:
    """A number between ``low`` and ``high`` for every image, float32 ``[B]``."""
    return low + (high - low) * torch.rand(len(images), generator=generator, device=images.device)


def integers(images: Tensor, generator: Generator, high: int) -> Tensor:
    """A whole number from 0 to ``high - 1`` for every image, int64 ``[B]``."""
    return torch.randint(high, (len(images),), generator=generator, device=images.device)


def coins(images: Tensor, generator: Generator, probability: float) -> Tensor:
    """True with the given probability for every image, bool ``[B]``."""
    return torch.rand(len(images), generator=generator, device=images.device) < probability


def per_image(values: Tensor) -> Tensor:
    """``[B]`` as ``[B, 1, 1, 1]``, to meet images."""
    return values.view(-1, 1, 1, 1)


@lru_cache(maxsize=64)
def constant(values: Sequence[float], device: torch.device) -> Tensor:
    """A constant of a pipeline as float32, brought to the device once: later uses do not wait for it."""
    return torch.tensor(values, dtype=torch.float32, device=device)


def probability(value: float, name: str) -> None:
    """Refuse what is not a probability."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is a probability between 0 and 1; found {value}.")
