"""Every operation equals torchvision's function, image by image, for the parameters it drew."""

from __future__ import annotations

import math

import pytest
import torch
from torchvision.transforms.v2 import functional as tv

from iam_lab.data import spec_of
from iam_lab.data.augment import (
    ColorJitter,
    Cutout,
    Grayscale,
    HorizontalFlip,
    Normalize,
    Pipeline,
    RandAugment,
    RandomCrop,
    RandomResizedCrop,
    Views,
    build_augment,
)
from iam_lab.data.augment.named import PIPELINES
from iam_lab.data.augment.rand_augment import Kind, one_of_fourteen

SHAPES = [(3, 32, 32), (1, 28, 28), (3, 24, 40), (3, 9, 7)]
COLORED = [shape for shape in SHAPES if shape[0] == 3]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(shape, count=40):
    """Noise, smooth gradients of few or many values, black, white, grey, and one bright pixel."""
    g = generator(1)
    channels, height, width = shape
    images = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=g)
    ramp = torch.linspace(0, 1, width) * torch.linspace(0.2, 1, height)[:, None]
    low, high = torch.rand(2, count // 2, channels, 1, 1, generator=g) * 255
    images[: count // 2] = (low + (high - low) * ramp).to(torch.uint8)
    images[0], images[1], images[2] = 0, 255, 119
    images[3] = 0
    images[3, :, height // 2, width // 2] = 201
    images[4] = images[4, :1]
    return images


def assert_bytes(found, expected, level=0, share=0.0):
    """At most ``share`` of the bytes differ, by at most ``level``: what is left to rounding."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype == torch.uint8
    difference = (found.int() - expected.int()).abs()
    assert difference.max() <= level, f"{difference.max()} at {(difference == difference.max()).nonzero()[0]}"
    assert (difference > 0).float().mean() <= share


def each(function, images, *parameters):
    """What torchvision makes of every image, with its parameters as numbers."""
    columns = [parameter.tolist() for parameter in parameters]
    return torch.stack([function(image, *row) for image, *row in zip(images, *columns, strict=True)])


@pytest.mark.parametrize("name", [name for name in PIPELINES if name != "none"])
@pytest.mark.parametrize(
    ("images", "found"),
    [
        (torch.rand(2, 3, 32, 32), r"found float32 \[2, 3, 32, 32\]"),
        (torch.randint(0, 256, (2, 3, 32, 32)), r"found int64 \[2, 3, 32, 32\]"),
        (torch.zeros(3, 32, 32, dtype=torch.uint8), r"found uint8 \[3, 32, 32\]"),
    ],
    ids=["floats", "integers", "one-image"],
)
def test_what_is_no_batch_of_bytes_is_refused(name, images, found):
    """RandAugment would make floats black, ColorJitter round them, Cutout paint 127."""
    augment = build_augment(name, spec_of("cifar10"))
    with pytest.raises(ValueError, match=rf"takes images uint8 \[B, C, H, W\]; {found}.*Augment bytes"):
        augment(images, generator())
    for operation in augment.operations:
        with pytest.raises(ValueError, match=f"^{type(operation).__name__} takes images"):
            operation(images, generator())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("padding", "mode"), [(4, "zero"), (4, "reflect"), (1, "zero"), (0, "zero"), (6, "reflect")]
)
def test_crop(shape, padding, mode):
    images, crop = pictures(shape), RandomCrop(padding, mode)
    drawn = crop.draw(images, generator())

    def theirs(image, top, left):
        fill = "constant" if mode == "zero" else "reflect"
        return tv.crop(tv.pad(image, [padding] * 4, padding_mode=fill), top, left, *shape[1:])

    assert_bytes(crop.apply(images, drawn), each(theirs, images, *drawn))


@pytest.mark.parametrize("shape", SHAPES)
def test_flip(shape):
    images, flip = pictures(shape), HorizontalFlip()
    drawn = flip.draw(images, generator())
    theirs = each(lambda image, yes: tv.horizontal_flip(image) if yes else image, images, drawn)
    assert_bytes(flip.apply(images, drawn), theirs)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_normalize(channels_last, dtype):
    images, spec = pictures((3, 32, 32)), spec_of("cifar10")
    found = Normalize(spec.mean, spec.std, dtype, channels_last)(images)
    expected = tv.normalize(tv.to_dtype(images, torch.float32, scale=True), list(spec.mean), list(spec.std))
    assert found.dtype == dtype
    assert found.is_contiguous(
        memory_format=torch.channels_last if channels_last else torch.contiguous_format
    )
    torch.testing.assert_close(found.float(), expected.to(dtype).float(), rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("shape", [*SHAPES, (3, 40, 8)])
@pytest.mark.parametrize(
    "options", [{}, {"scale": (0.4, 1.0), "size": 32}, {"size": 11}, {"ratio": (0.2, 0.3)}]
)
def test_resized_crop(shape, options):
    images, crop = pictures(shape), RandomResizedCrop(**options)
    drawn = crop.draw(images, generator())
    size = [crop.size, crop.size] if crop.size else list(shape[1:])

    def theirs(image, *box):  # as float: for bytes torchvision rounds between its two passes
        resized = tv.resized_crop(image.float(), *box, size, antialias=True)
        return resized.round().clamp(0, 255).to(torch.uint8)

    assert_bytes(crop.apply(images, drawn), each(theirs, images, *drawn), level=1, share=1e-3)

    def theirs_on_bytes(image, *box):
        return tv.resized_crop(image, *box, size, antialias=True)

    assert_bytes(crop.apply(images, drawn), each(theirs_on_bytes, images, *drawn), level=1, share=0.2)


JITTERS = [
    {"brightness": 0.4, "contrast": 0.4, "saturation": 0.2, "hue": 0.1},
    {"brightness": 0.9, "contrast": 0.9, "saturation": 0.9, "hue": 0.5, "p": 0.7},
    {"brightness": 1.5},
    {"contrast": 0.8, "saturation": 3.0},
    {"hue": 0.3},
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strengths", JITTERS)
def test_color_jitter_in_any_order(shape, strengths):
    images, jitter = pictures(shape, 60), ColorJitter(**strengths)
    factors, hue, order = jitter.draw(images, generator())

    def theirs(image, factor, shift, order):
        brightness, contrast, saturation = factor
        for step in order:
            if step == 0 and brightness != 1:
                image = tv.adjust_brightness(image, brightness)
            elif step == 1 and contrast != 1:
                image = tv.adjust_contrast(image, contrast)
            elif step == 2 and saturation != 1:
                image = tv.adjust_saturation(image, saturation)
            elif step == 3 and shift != 0:
                image = tv.adjust_hue(image, shift)
        return image

    expected = each(theirs, images, factors, hue, order)
    found = jitter.apply(images, (jitter.draw(images, generator())))
    if len(strengths) == 1:
        assert_bytes(found, expected, level=1, share=2e-3)
    else:  # a byte that rounds the other way is multiplied by the steps that follow
        assert_bytes(found, expected, level=12, share=2e-2)
        assert ((found.int() - expected.int()).abs() > 1).float().mean() < 5e-3


@pytest.mark.parametrize("shape", SHAPES)
def test_grayscale(shape):
    images, gray = pictures(shape), Grayscale(0.5)
    drawn = gray.draw(images, generator())

    def theirs(image, yes):
        return tv.rgb_to_grayscale(image, num_output_channels=shape[0]) if yes else image

    assert_bytes(gray.apply(images, drawn), each(theirs, images, drawn), level=1, share=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [0, 1, 5, 16, 100])
def test_cutout(shape, size):
    images, cutout = pictures(shape), Cutout(size, fill=99)
    drawn = cutout.draw(images, generator())

    def theirs(image, row, column):
        top, left = max(row - size // 2, 0), max(column - size // 2, 0)
        bottom, right = row - size // 2 + size, column - size // 2 + size
        patch = torch.tensor(99, dtype=torch.uint8).view(1, 1, 1)
        return tv.erase(image, top, left, max(bottom - top, 0), max(right - left, 0), patch)

    assert_bytes(cutout.apply(images, drawn), each(theirs, images, *drawn))


def torchvisions(kind, image, value):
    """As torchvision's RandAugment calls its functions."""

    def affine(translate=(0, 0), shear=(0.0, 0.0), center=None):
        return tv.affine(image, 0.0, list(translate), 1.0, list(shear), center=center)

    def degrees(tangent):
        return math.degrees(math.atan(tangent))

    return {
        Kind.IDENTITY: lambda: image,
        Kind.SHEAR_X: lambda: affine(shear=(degrees(value), 0.0), center=[0, 0]),
        Kind.SHEAR_Y: lambda: affine(shear=(0.0, degrees(value)), center=[0, 0]),
        Kind.TRANSLATE_X: lambda: affine(translate=(int(value), 0)),
        Kind.TRANSLATE_Y: lambda: affine(translate=(0, int(value))),
        Kind.ROTATE: lambda: tv.rotate(image, value),
        Kind.BRIGHTNESS: lambda: tv.adjust_brightness(image, value),
        Kind.COLOR: lambda: tv.adjust_saturation(image, value),
        Kind.CONTRAST: lambda: tv.adjust_contrast(image, value),
        Kind.SHARPNESS: lambda: tv.adjust_sharpness(image, value),
        Kind.POSTERIZE: lambda: tv.posterize(image, int(value)),
        Kind.SOLARIZE: lambda: tv.solarize(image, min(value, 255)),
        Kind.AUTO_CONTRAST: lambda: tv.autocontrast(image),
        Kind.EQUALIZE: lambda: tv.equalize(image),
    }[kind]()


RANGES = {
    **dict.fromkeys((Kind.SHEAR_X, Kind.SHEAR_Y), (-0.3, 0.3)),
    **dict.fromkeys((Kind.TRANSLATE_X, Kind.TRANSLATE_Y), (-14.5, 14.5)),
    Kind.ROTATE: (-30.0, 30.0),
    **dict.fromkeys((Kind.BRIGHTNESS, Kind.COLOR, Kind.CONTRAST, Kind.SHARPNESS), (0.05, 1.9)),
    Kind.POSTERIZE: (1, 8),
    Kind.SOLARIZE: (0, 255),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", list(Kind))
def test_every_operation_of_rand_augment(shape, kind):
    images = pictures(shape)
    low, high = RANGES.get(kind, (0.0, 0.0))
    value = low + (high - low) * torch.rand(len(images), generator=generator())
    if kind in (Kind.POSTERIZE, Kind.SOLARIZE):
        value = value.floor()
    found = one_of_fourteen(images, torch.full((len(images),), int(kind)), value)
    expected = each(lambda image, number: torchvisions(kind, image, number), images, value)
    level, share = 0, 0.0
    if Kind.BRIGHTNESS <= kind <= Kind.SHARPNESS:
        # Bytes that equal the mean stay what they are here; torchvision rounds some of them down by one.
        level, share = 1, 0.03 if kind == Kind.CONTRAST else 2e-3
    elif kind in (Kind.SHEAR_X, Kind.SHEAR_Y, Kind.ROTATE):
        # Of two pixels equally near, the last bit of the coordinates decides which one is taken.
        level, share = 255, 2e-3
    assert_bytes(found, expected, level, share)


@pytest.mark.parametrize("policy", ["torchvision", "fixmatch"])
def test_rand_augment_is_its_operations_one_after_the_other(policy):
    images, augment = pictures((3, 32, 32)), RandAugment(3, 10, policy)
    drawn = augment.draw(images, generator())
    expected = images
    for kind, value in zip(drawn.kind.T, drawn.value.T, strict=True):
        expected = each(
            lambda image, k, v: one_of_fourteen(image[None], torch.tensor([k]), torch.tensor([v]))[0],
            expected, kind, value,
        )  # fmt: skip
    assert_bytes(augment.apply(images, drawn), expected)
    assert not torch.equal(expected, images)


# --- what all have in common ---------------------------------------------------------------------------

OPERATIONS = [
    RandomCrop(4),
    RandomCrop(4, "reflect"),
    HorizontalFlip(),
    RandomResizedCrop(),
    ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8),
    Grayscale(),
    Cutout(8),
    RandAugment(2, 10),
    RandAugment(2, 10, "fixmatch"),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_in_bytes_out_by_the_generator_alone(operation, shape):
    images = pictures(shape)
    before, stream = images.clone(), torch.get_rng_state()
    found = operation(images, generator(5))
    assert found.dtype == torch.uint8
    assert found.shape == images.shape
    assert torch.equal(found, operation(images, generator(5)))
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), stream)
    last = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(operation(last, generator(5)), found)


class NoSync(torch.utils._python_dispatch.TorchDispatchMode):
    """Refuses what would wait for a device: reading a number, and results whose size depends on values."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        waits = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "item")
        assert not any(word in func.name() for word in waits), f"{func.name()} waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", list(PIPELINES))
@pytest.mark.parametrize("dataset", ["cifar10", "fashion_mnist", "digits"])
def test_named_pipelines(name, dataset):
    spec = spec_of(dataset)
    images = pictures((spec.channels, spec.image_size, spec.image_size))
    augment = build_augment(name, spec, channels_last=True)
    augment(images, generator())  # constants reach the device on first use
    with NoSync():
        found = augment(images, generator(2))
    assert found.shape == images.shape
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert hash(augment) == hash(build_augment(name, spec, channels_last=True))


def test_the_papers_crop_is_four_pixels():
    for dataset in ("cifar10", "fashion_mnist", "svhn"):
        assert build_augment("crop-flip", spec_of(dataset)).operations == (RandomCrop(4), HorizontalFlip())


def test_views_are_drawn_one_after_the_other():
    images = pictures((3, 32, 32))
    weak, strong = (build_augment(name, spec_of("cifar10")) for name in ("weak", "fixmatch-strong"))
    g = generator()
    expected = weak(images, g), strong(images, g)
    found = Views((weak, strong))(images, generator())
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: RandomCrop(-1), "found -1"),
        (lambda: RandomCrop(1, "edge"), "mode is 'zero' or 'reflect'; found 'edge'"),
        (lambda: RandomCrop(9, "reflect")(pictures((3, 9, 7)), generator()), "at most 6 pixels of images of 9 x 7"),
        (lambda: HorizontalFlip(1.5), "p is a probability between 0 and 1; found 1.5"),
        (lambda: Grayscale(-0.1), "probability"),
        (lambda: Normalize((0.5,), (0.5, 0.5)), "a number for every channel"),
        (lambda: Normalize((0.5,), (0.0,)), "std is positive"),
        (lambda: Normalize((0.5,), (0.5,))(pictures((3, 9, 7))), "images have 3 channels, mean and std 1"),
        (lambda: RandomResizedCrop(scale=(0.5, 0.1)), "increasing pair"),
        (lambda: ColorJitter(hue=0.6), "hue is between 0 and 0.5"),
        (lambda: ColorJitter(brightness=-1), "not negative"),
        (lambda: Cutout(-1), "found size=-1"),
        (lambda: RandAugment(2, 31), "magnitude is 0 to 30 for policy 'torchvision'"),
        (lambda: RandAugment(2, 1, "fixmatch"), "magnitude is 2 to 11"),
        (lambda: RandAugment(2, 1, "auto"), "policy is 'torchvision' or 'fixmatch'; found 'auto'"),
        (lambda: build_augment("crop_flip", spec_of("cifar10")), "Did you mean crop-flip"),
    ],
)  # fmt: skip
def test_errors_say_what_to_write(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_an_empty_pipeline_only_normalizes():
    images = pictures((1, 28, 28))
    normalize = Normalize((0.2,), (0.4,))
    assert torch.equal(Pipeline((), normalize)(images, generator()), normalize(images))
