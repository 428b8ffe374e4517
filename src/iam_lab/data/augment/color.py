"""Colours: jitter and grayscale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from iam_lab.data.augment import blend
from iam_lab.data.augment.operation import Operation, coins, per_image, probability, uniform

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


class Jitter(NamedTuple):
    """What :class:`ColorJitter` draws.

    Attributes:
        factors: of brightness, contrast and saturation, float32 ``[B, 3]``; 1 changes nothing.
        hue: shift in turns, float32 ``[B]``.
        order: for every image, which of the four is done first, second, ...: int64 ``[B, 4]``.
    """

    factors: Tensor
    hue: Tensor
    order: Tensor


@dataclass(frozen=True)
class ColorJitter(Operation[Jitter]):
    """Change brightness, contrast, saturation and hue, in an order that is drawn as well.

    Args:
        brightness: factors are drawn from [max(0, 1 - brightness), 1 + brightness].
        contrast: likewise.
        saturation: likewise.
        hue: shifts are drawn from [-hue, hue], in turns; at most 0.5.
        p: probability that an image is changed at all.

    >>> jitter = ColorJitter(brightness=0.4, hue=0.1)
    >>> images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    >>> jitter(images, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 4, 4])
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    p: float = 1.0

    def __post_init__(self) -> None:
        probability(self.p, "p")
        strengths = (self.brightness, self.contrast, self.saturation)
        if min(strengths) < 0 or not 0 <= self.hue <= 0.5:
            raise ValueError(
                "brightness, contrast and saturation are not negative and hue is between 0 and 0.5; "
                f"found {strengths} and {self.hue}."
            )

    def draw(self, images: Tensor, generator: Generator) -> Jitter:
        """Factors, shift and order for every image; for those left alone 1 and 0."""
        chosen = coins(images, generator, self.p)
        factors = [
            torch.where(chosen, uniform(images, generator, max(0.0, 1 - strength), 1 + strength), 1.0)
            for strength in (self.brightness, self.contrast, self.saturation)
        ]
        hue = torch.where(chosen, uniform(images, generator, -self.hue, self.hue), 0.0)
        keys = torch.rand((len(images), 4), generator=generator, device=images.device)
        return Jitter(torch.stack(factors, 1), hue, keys.argsort(1))

    def apply(self, images: Tensor, drawn: Jitter) -> Tensor:
        """The images in other colours."""
        pixels = images.float()
        if self.hue == 0:
            return self._mixed(pixels, drawn, range(4), torch.ones_like(drawn.order).bool()).to(images.dtype)
        # Hue costs most: it is done once for the whole batch, between what precedes and what follows it.
        slot = torch.arange(4, device=images.device)
        at = (drawn.order == HUE).int().argmax(1, keepdim=True)
        pixels = self._mixed(pixels, drawn, range(3), slot < at)
        shifted = blend.shifted_hue(pixels, drawn.hue)
        pixels = torch.where(per_image(drawn.hue != 0), shifted, pixels)
        return self._mixed(pixels, drawn, range(1, 4), slot > at).to(images.dtype)

    def _mixed(self, pixels: Tensor, drawn: Jitter, slots: range, active: Tensor) -> Tensor:
        """Brightness, contrast and saturation of the slots that are active, bool ``[B, 4]``."""
        one = torch.ones_like(drawn.hue)
        # One channel has no saturation, and x f + x (1 - f) is not quite x.
        saturation = drawn.factors[:, SATURATION] if pixels.shape[1] > 1 else one
        factors = torch.stack([*drawn.factors[:, :SATURATION].unbind(1), saturation, one], 1)
        for slot in slots:
            kind = drawn.order[:, slot]
            factor = torch.where(active[:, slot], factors.gather(1, kind[:, None])[:, 0], one)
            gray = blend.gray(pixels)
            toward = torch.where(per_image(kind == CONTRAST), gray.mean((1, 2, 3), keepdim=True), gray)
            toward = torch.where(per_image(kind == BRIGHTNESS), 0.0, toward)
            pixels = blend.mix(pixels, toward, factor)
        return pixels


@dataclass(frozen=True)
class Grayscale(Operation[Tensor]):
    """Take the colour out with probability ``p``, keeping the channels; what is drawn is bool ``[B]``.

    >>> red = torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1)
    >>> Grayscale().apply(red, torch.tensor([True])).flatten().tolist()
    [76, 76, 76]
    """

    p: float = 0.2

    def __post_init__(self) -> None:
        probability(self.p, "p")

    def draw(self, images: Tensor, generator: Generator) -> Tensor:
        """Which images lose their colour."""
        return coins(images, generator, self.p)

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """The images, some of them grey."""
        return torch.where(per_image(drawn), blend.gray(images.float()).to(images.dtype), images)
