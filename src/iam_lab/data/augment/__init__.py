"""Augmentation on the device, in batch, each image with its own draw."""

from typing import TYPE_CHECKING

from iam_lab.lazy import exports

if TYPE_CHECKING:
    from iam_lab.data.augment.color import ColorJitter as ColorJitter
    from iam_lab.data.augment.color import Grayscale as Grayscale
    from iam_lab.data.augment.crop import RandomCrop as RandomCrop
    from iam_lab.data.augment.cutout import Cutout as Cutout
    from iam_lab.data.augment.flip import HorizontalFlip as HorizontalFlip
    from iam_lab.data.augment.named import build_augment as build_augment
    from iam_lab.data.augment.normalize import Normalize as Normalize
    from iam_lab.data.augment.operation import Operation as Operation
    from iam_lab.data.augment.pipeline import Pipeline as Pipeline
    from iam_lab.data.augment.pipeline import Views as Views
    from iam_lab.data.augment.rand_augment import RandAugment as RandAugment
    from iam_lab.data.augment.resized_crop import RandomResizedCrop as RandomResizedCrop

__getattr__, __dir__ = exports(
    __name__,
    {
        "ColorJitter": ".color",
        "Cutout": ".cutout",
        "Grayscale": ".color",
        "HorizontalFlip": ".flip",
        "Normalize": ".normalize",
        "Operation": ".operation",
        "Pipeline": ".pipeline",
        "RandAugment": ".rand_augment",
        "RandomCrop": ".crop",
        "RandomResizedCrop": ".resized_crop",
        "Views": ".pipeline",
        "build_augment": ".named",
    },
)
