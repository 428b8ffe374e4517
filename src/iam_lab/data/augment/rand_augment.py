"""RandAugment: a few operations a image, drawn from fourteen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from iam_lab.data.augment import blend, tables
from iam_lab.data.augment.geometry import affine
from iam_lab.data.augment.operation import Operation, per_image


class Kind(IntEnum):
    """What can be done to an image; behind each the meaning of its value."""

    IDENTITY = 0
    SHEAR_X = 1  # tangent of the angle
    SHEAR_Y = 2
    TRANSLATE_X = 3  # pixels, rounded towards 0
    TRANSLATE_Y = 4
    ROTATE = 5  # degrees, counter-clockwise
    BRIGHTNESS = 6  # factor
    COLOR = 7
    CONTRAST = 8
    SHARPNESS = 9
    POSTERIZE = 10  # bits that are kept
    SOLARIZE = 11  # smallest value that is inverted
    AUTO_CONTRAST = 12
    EQUALIZE = 13


class Chosen(NamedTuple):
    """Operation and value for every image and step, int64 and float32 ``[B, steps]``."""

    kind: Tensor
    value: Tensor


@dataclass(frozen=True)
class RandAugment(Operation[Chosen]):
    """One operation after another, each drawn for each image.

    ``policy="torchvision"``: every operation at the fixed ``magnitude`` of 0 to 30, towards either side,
    as torchvision's ``RandAugment(num_ops, magnitude)``. ``policy="fixmatch"``: every operation with
    probability one half, at a level drawn from 1 to ``magnitude - 1`` of 10, as FixMatch's
    ``RandAugment(2, 10)``; there brightness, colour, contrast and sharpness only decrease.

    The ranges of ``"fixmatch"`` are those of the table in FixMatch's paper. Google's code has others: factors of
    brightness, colour, contrast and sharpness go from 0.28 to 1.72, so that they increase too; posterize keeps 1
    to 4 bits and not 4 to 7; shifts are 1 to 9 pixels, whatever the size of the image; and what an affine map
    leaves open is grey, not black.

    Args:
        num_ops: operations an image.
        magnitude: see above.
        policy: see above.

    >>> augment = RandAugment(2, 10)
    >>> images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    >>> augment.draw(images, torch.Generator().manual_seed(0)).kind.shape
    torch.Size([2, 2])
    """

    num_ops: int = 2
    magnitude: int = 10
    policy: Literal["torchvision", "fixmatch"] = "torchvision"

    def __post_init__(self) -> None:
        highest = {"torchvision": 30, "fixmatch": 11}.get(self.policy)
        if highest is None:
            raise ValueError(f"policy is 'torchvision' or 'fixmatch'; found {self.policy!r}.")
        lowest = 0 if self.policy == "torchvision" else 2
        if self.num_ops < 0 or not lowest <= self.magnitude <= highest:
            raise ValueError(
                f"num_ops is not negative, and magnitude is {lowest} to {highest} for policy {self.policy!r}; "
                f"found num_ops={self.num_ops}, magnitude={self.magnitude}."
            )

    def draw(self, images: Tensor, generator: Generator) -> Chosen:
        """Operations and values."""
        shape, device = (len(images), self.num_ops), images.device
        kind = torch.randint(len(Kind), shape, generator=generator, device=device)
        sign = 1 - 2 * torch.randint(2, shape, generator=generator, device=device).float()
        height, width = images.shape[2:]
        if self.policy == "torchvision":
            share = torch.full(shape, self.magnitude / 30, device=device)
            value = _pick(kind, _torchvision_values(share, sign, height, width))
            return Chosen(kind, value)
        level = torch.randint(1, self.magnitude, shape, generator=generator, device=device)
        done = torch.randint(2, shape, generator=generator, device=device).bool()
        value = _pick(kind, _fixmatch_values(level, sign, height, width))
        return Chosen(torch.where(done, kind, Kind.IDENTITY), value)

    def apply(self, images: Tensor, drawn: Chosen) -> Tensor:
        """The images after all steps."""
        for kind, value in zip(drawn.kind.unbind(1), drawn.value.unbind(1), strict=True):
            images = one_of_fourteen(images, kind, value)
        return images


def one_of_fourteen(images: Tensor, kind: Tensor, value: Tensor) -> Tensor:
    """One operation on every image, its own: uint8 ``[B, C, H, W]``, ``[B]`` and ``[B]``.

    Three families do everything: an affine map, a mixture with another image, a table of values. Each runs
    once over the batch and changes only the images whose operation it is.
    """
    images = affine(images, _maps(kind, value, *images.shape[2:]))
    images = _mixed(images, kind, value)
    return tables.look_up(images, _table(images, kind, value))


def _maps(kind: Tensor, value: Tensor, height: int, width: int) -> Tensor:
    """The affine map of every image ``[B, 2, 3]``, the identity for other operations."""

    def only(which: Kind, number: Tensor) -> Tensor:
        return torch.where(kind == which, number, 0.0)

    angle = torch.deg2rad(only(Kind.ROTATE, value))
    shear_x, shear_y = only(Kind.SHEAR_X, value), only(Kind.SHEAR_Y, value)
    across, down = only(Kind.TRANSLATE_X, value.trunc()), only(Kind.TRANSLATE_Y, value.trunc())
    # Shears keep the upper left corner of the image, rotations its centre.
    top = torch.stack((angle.cos(), shear_x - angle.sin(), shear_x * (height / 2) - across), 1)
    bottom = torch.stack((shear_y + angle.sin(), angle.cos(), shear_y * (width / 2) - down), 1)
    return torch.stack((top, bottom), 1)


def _mixed(images: Tensor, kind: Tensor, value: Tensor) -> Tensor:
    pixels = images.float()
    gray = blend.gray(pixels)
    toward = torch.where(per_image(kind == Kind.SHARPNESS), blend.blurred(pixels), gray)
    toward = torch.where(per_image(kind == Kind.CONTRAST), gray.mean((1, 2, 3), keepdim=True), toward)
    toward = torch.where(per_image(kind == Kind.BRIGHTNESS), 0.0, toward)
    mixes = (kind >= Kind.BRIGHTNESS) & (kind <= Kind.SHARPNESS)
    if images.shape[1] == 1:  # one channel has no colour to lose
        mixes = mixes & (kind != Kind.COLOR)
    return blend.mix(pixels, toward, torch.where(mixes, value, 1.0)).to(images.dtype)


def _table(images: Tensor, kind: Tensor, value: Tensor) -> Tensor:
    device, which = images.device, kind.view(-1, 1, 1)
    bits = torch.where(kind == Kind.POSTERIZE, value, 8.0)
    threshold = torch.where(kind == Kind.SOLARIZE, value, 256.0)
    table = torch.where(
        which == Kind.POSTERIZE, tables.posterized(bits, device), tables.solarized(threshold, device)
    )
    table = torch.where(which == Kind.AUTO_CONTRAST, tables.stretched(images), table)
    return torch.where(which == Kind.EQUALIZE, tables.equalized(images), table)


def _pick(kind: Tensor, by_kind: list[Tensor]) -> Tensor:
    """The value that belongs to the kind, of one tensor for each."""
    return torch.stack(by_kind, -1).gather(-1, kind[..., None])[..., 0]


def _torchvision_values(share: Tensor, sign: Tensor, height: int, width: int) -> list[Tensor]:
    none, signed = torch.zeros_like(share), share * sign
    factor = 1 + 0.9 * signed
    return [
        none,
        0.3 * signed,
        0.3 * signed,
        150 / 331 * width * signed,
        150 / 331 * height * signed,
        30 * signed,
        *[factor] * 4,
        (8 - 4 * share).round(),
        255 * (1 - share),
        none,
        none,
    ]


def _fixmatch_values(level: Tensor, sign: Tensor, height: int, width: int) -> list[Tensor]:
    share = level.float() / 10
    none, signed = torch.zeros_like(share), share * sign
    factor = 0.05 + 0.9 * share
    return [
        none,
        0.3 * signed,
        0.3 * signed,
        0.3 * width * signed,
        0.3 * height * signed,
        30 * signed,
        *[factor] * 4,
        (4 + level * 4 // 10).float(),
        (256 - level * 256 // 10).float(),
        none,
        none,
    ]
