"""What is drawn is distributed as torchvision's draws are: two-sample tests, seeds fixed.

A test fails below a p-value of 1e-4; with the seeds as they are each passes or fails for good.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torchvision import transforms as tv
from torchvision.transforms import v2

from iam_lab.data.augment import (
    ColorJitter,
    Cutout,
    Grayscale,
    HorizontalFlip,
    RandAugment,
    RandomCrop,
    RandomResizedCrop,
)
from iam_lab.data.augment.rand_augment import Kind

OURS, THEIRS = 20_000, 4_000
UNLIKELY = 1e-4


def images(count=OURS, height=32, width=32):
    """A batch of this shape that takes no memory."""
    return torch.zeros((), dtype=torch.uint8).expand(count, 3, height, width)


def generator():
    return torch.Generator().manual_seed(0)


def same_counts(a, b):
    """P-value of two samples of whole numbers having one distribution."""
    values = np.union1d(a, b)
    table = np.stack([[np.sum(sample == value) for value in values] for sample in map(np.asarray, (a, b))])
    return stats.chi2_contingency(table).pvalue if len(values) > 1 else 1.0


def same_numbers(a, b):
    """P-value of two samples of real numbers having one distribution."""
    return stats.ks_2samp(np.asarray(a), np.asarray(b)).pvalue


def uniform(sample, count):
    """P-value of whole numbers being drawn from 0 to ``count - 1``, each as likely."""
    return stats.chisquare(np.bincount(np.asarray(sample), minlength=count)).pvalue


def independent(a, b):
    """P-value of two whole numbers of each image being drawn without regard to each other."""
    a, b = np.asarray(a), np.asarray(b)
    return stats.chi2_contingency(np.histogram2d(a, b, bins=(np.ptp(a) + 1, np.ptp(b) + 1))[0]).pvalue


def share(yes, probability):
    return stats.binomtest(int(yes.sum()), len(yes), probability).pvalue


@pytest.mark.parametrize(("padding", "mode"), [(4, "zero"), (1, "reflect")])
def test_crop(padding, mode):
    top, left = RandomCrop(padding, mode).draw(images(), generator())
    torch.manual_seed(1)
    padded = torch.zeros(3, 32 + 2 * padding, 32 + 2 * padding)
    theirs = np.array([tv.RandomCrop.get_params(padded, (32, 32))[:2] for _ in range(THEIRS)])
    assert same_counts(top, theirs[:, 0]) > UNLIKELY
    assert same_counts(left, theirs[:, 1]) > UNLIKELY
    assert independent(top, left) > UNLIKELY


@pytest.mark.parametrize("p", [0.5, 0.2])
def test_flip_and_grayscale(p):
    for operation in (HorizontalFlip(p), Grayscale(p)):
        assert share(operation.draw(images(), generator()), p) > UNLIKELY
    for never, always in ((HorizontalFlip(0.0), HorizontalFlip(1.0)), (Grayscale(0.0), Grayscale(1.0))):
        assert not never.draw(images(), generator()).any()
        assert always.draw(images(), generator()).all()


@pytest.mark.parametrize(
    ("size", "scale", "ratio"),
    [
        ((32, 32), (0.08, 1.0), (3 / 4, 4 / 3)),
        ((32, 32), (0.4, 1.0), (3 / 4, 4 / 3)),
        ((48, 20), (0.5, 1.0), (0.5, 2.0)),  # many attempts do not fit
        ((40, 6), (0.9, 1.0), (3 / 4, 4 / 3)),  # hardly one fits: the central box
        ((6, 40), (0.9, 1.0), (3 / 4, 4 / 3)),
    ],
)
def test_resized_crop(size, scale, ratio):
    ours = RandomResizedCrop(scale=scale, ratio=ratio).draw(images(OURS, *size), generator())
    torch.manual_seed(1)
    picture = torch.zeros(3, *size)
    theirs = [tv.RandomResizedCrop.get_params(picture, list(scale), list(ratio)) for _ in range(THEIRS)]
    for mine, other in zip(ours, zip(*theirs, strict=True), strict=True):
        assert same_numbers(mine, other) > UNLIKELY
    top, left, height, width = ours
    assert ((top >= 0) & (left >= 0) & (top + height <= size[0]) & (left + width <= size[1])).all()


def test_color_jitter():
    ours = ColorJitter(0.4, 0.4, 1.3, 0.1).draw(images(), generator())
    torch.manual_seed(1)
    bounds = ([0.6, 1.4], [0.6, 1.4], [0.0, 2.3], [-0.1, 0.1])
    theirs = [tv.ColorJitter.get_params(*bounds) for _ in range(THEIRS)]
    for column in range(3):
        assert same_numbers(ours.factors[:, column], [draw[1 + column] for draw in theirs]) > UNLIKELY
    assert same_numbers(ours.hue, [draw[4] for draw in theirs]) > UNLIKELY
    digits = torch.tensor([64, 16, 4, 1])
    orders = [int((draw[0] * digits).sum()) for draw in theirs]
    assert same_counts((ours.order * digits).sum(1), orders) > UNLIKELY
    assert len(set(orders)) == 24


def test_color_jitter_leaves_some_images_alone():
    drawn = ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8).draw(images(), generator())
    alone = (drawn.factors == 1).all(1) & (drawn.hue == 0)
    assert share(~alone, 0.8) > UNLIKELY


def test_cutout_covers_every_pixel_alike():
    row, column = Cutout(8).draw(images(OURS, 9, 7), generator())
    assert uniform(row * 7 + column, 63) > UNLIKELY


NAMES = {
    "Identity": Kind.IDENTITY, "ShearX": Kind.SHEAR_X, "ShearY": Kind.SHEAR_Y, "TranslateX": Kind.TRANSLATE_X,
    "TranslateY": Kind.TRANSLATE_Y, "Rotate": Kind.ROTATE, "Brightness": Kind.BRIGHTNESS, "Color": Kind.COLOR,
    "Contrast": Kind.CONTRAST, "Sharpness": Kind.SHARPNESS, "Posterize": Kind.POSTERIZE,
    "Solarize": Kind.SOLARIZE, "AutoContrast": Kind.AUTO_CONTRAST, "Equalize": Kind.EQUALIZE,
}  # fmt: skip


@pytest.mark.parametrize("magnitude", [0, 9, 10, 15, 30])
def test_rand_augment_is_torchvisions(monkeypatch, magnitude):
    seen = []

    def record(self, image, name, value, **_):
        seen.append((NAMES[name], value))
        return image

    monkeypatch.setattr(v2.RandAugment, "_apply_image_or_video_transform", record)
    torch.manual_seed(1)
    theirs = v2.RandAugment(2, magnitude)
    picture = torch.zeros(3, 32, 24, dtype=torch.uint8)
    for _ in range(THEIRS):
        theirs(picture)
    kinds = np.array([kind for kind, _ in seen])
    values = np.array([value for _, value in seen])
    drawn = RandAugment(2, magnitude).draw(images(OURS, 32, 24), generator())
    kind, value = drawn.kind.flatten().numpy(), drawn.value.flatten().numpy()
    assert same_counts(kind, kinds) > UNLIKELY
    assert independent(drawn.kind[:, 0], drawn.kind[:, 1]) > UNLIKELY
    for which in Kind:
        mine, other = value[kind == which], values[kinds == which]
        if Kind.BRIGHTNESS <= which <= Kind.SHARPNESS:
            other = 1 + other
        elif which == Kind.SOLARIZE:
            other = 255 * other
        np.testing.assert_allclose(np.unique(mine.round(4)), np.unique(other.round(4)), atol=2e-4)
        assert same_counts(mine.astype(float).round(2), other.round(2)) > UNLIKELY


def test_rand_augment_of_fixmatch():
    """Half of the operations, at levels 1 to 9 of 10: checked against the published table of operations."""
    drawn = RandAugment(2, 10, "fixmatch").draw(images(OURS, 32, 32), generator())
    kind, value = drawn.kind.flatten(), drawn.value.flatten()
    assert share(kind != Kind.IDENTITY, 0.5 * 13 / 14) > UNLIKELY
    assert uniform(kind[kind != Kind.IDENTITY] - 1, 13) > UNLIKELY
    level = torch.arange(1, 10).repeat_interleave(2)
    sign = torch.tensor([1, -1] * 9)
    published = {
        Kind.SHEAR_X: sign * 0.3 * level / 10,
        Kind.SHEAR_Y: sign * 0.3 * level / 10,
        Kind.TRANSLATE_X: sign * 0.3 * level / 10 * 32,
        Kind.TRANSLATE_Y: sign * 0.3 * level / 10 * 32,
        Kind.ROTATE: sign * 30 * level / 10,
        Kind.BRIGHTNESS: 0.05 + 0.9 * level / 10,
        Kind.COLOR: 0.05 + 0.9 * level / 10,
        Kind.CONTRAST: 0.05 + 0.9 * level / 10,
        Kind.SHARPNESS: 0.05 + 0.9 * level / 10,
        Kind.POSTERIZE: 4 + (4 * level / 10).floor(),
        Kind.SOLARIZE: 256 - (256 * level / 10).floor(),
    }
    for which, table in published.items():
        found = value[kind == which].double().round(decimals=4)
        expected = table.double().round(decimals=4)
        np.testing.assert_allclose(found.unique(), expected.unique(), atol=2e-4)
        frequencies = [((found - number).abs() < 1e-3).sum().item() for number in expected.unique()]
        shares = [((expected - number).abs() < 1e-3).float().mean().item() for number in expected.unique()]
        expected_counts = np.array(shares) / sum(shares) * len(found)
        assert stats.chisquare(frequencies, expected_counts).pvalue > UNLIKELY
