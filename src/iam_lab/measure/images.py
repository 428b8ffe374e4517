"""From a data set's bytes to what the model that is measured takes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from iam_lab.data.augment.normalize import Normalize
from iam_lab.data.catalogue import DataSpec
from iam_lab.errors import RecipeError

Size = tuple[int, int]

SMOOTH = ("bilinear", "bicubic")
"""Interpolations that average where they shrink."""


@dataclass(frozen=True)
class Preparation:
    """What is done to images; what is None is as the data set has it.

    Attributes:
        mean: subtracted from each channel, after scaling to [0, 1].
        std: what is divided by then.
        channels: of the model; a grey image is repeated for colour.
        size: height and width to scale to.
        crop: height and width to cut out of the middle then.
        mode: of the scaling.
        of_bytes: scale the bytes themselves, on a CPU, as image libraries do (which round and clip after each
            direction); else what is normalised, as in training.

    >>> import torch
    >>> grey = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    >>> from iam_lab.data import spec_of
    >>> Preparation((0.5,) * 3, (0.5,) * 3, channels=3, size=(16, 16))(grey, spec_of("digits")).shape
    torch.Size([2, 3, 16, 16])
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    channels: int | None = None
    size: Size | None = None
    crop: Size | None = None
    mode: str = "bicubic"
    of_bytes: bool = False

    def __call__(self, images: Tensor, spec: DataSpec) -> Tensor:
        """Images of a data set, uint8 ``[B, C, H, W]``, as the model takes them."""
        normalize = Normalize(self.mean or spec.mean, self.std or spec.std)
        coloured = self._coloured(images, spec)
        if self.of_bytes:
            return normalize(self._cropped(self._scaled(coloured)))
        return self._cropped(self._scaled(normalize(coloured)))

    def _coloured(self, images: Tensor, spec: DataSpec) -> Tensor:
        found, wanted = images.shape[1], self.channels
        if wanted in (None, found):
            return images
        if found != 1:
            raise RecipeError(
                f"The model takes images of {wanted} channel{'s' if wanted != 1 else ''}, those of {spec.name} "
                f"have {found}. Choose other images with --data."
            )
        return images.expand(-1, int(wanted or 1), -1, -1)

    def _scaled(self, images: Tensor) -> Tensor:
        if self.size is None or self.size == tuple(images.shape[-2:]):
            return images
        return F.interpolate(images, size=self.size, mode=self.mode, antialias=self.mode in SMOOTH)

    def _cropped(self, images: Tensor) -> Tensor:
        if self.crop is None:
            return images
        (height, width), (tall, wide) = self.crop, images.shape[-2:]
        if height > tall or width > wide:
            raise RecipeError(
                f"The model's crop of {height} x {width} is larger than its images, {tall} x {wide}."
            )
        top, left = (tall - height) // 2, (wide - width) // 2
        return images[..., top : top + height, left : left + width]
