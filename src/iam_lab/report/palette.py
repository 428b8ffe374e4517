"""One name, colour and marker per objective, the same in every table and figure.

The colours are those of Okabe and Ito, which people with colour-blindness tell apart; the markers differ
too, so that a page printed in grey can still be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Look:
    """How an objective appears."""

    name: str
    colour: str
    marker: str


LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        "sgd": Look("SGD", "#595959", "o"),
        "sgd-400": Look("SGD, twice the epochs", "#999999", "o"),
        "adamw": Look("AdamW", "#595959", "o"),
        "sam": Look("SAM", "#0072b2", "s"),
        "asam": Look("ASAM", "#3f9fd1", "D"),
        "iam-d": Look("IAM-D", "#c04f00", "^"),
        "iam-s": Look("IAM-S", "#00805c", "v"),
    }
)

SEQUENCE = ("#c04f00", "#0072b2", "#00805c", "#a3568b", "#595959", "#b8860b")
"""For what is not an objective: values of K, m, ... in order."""

DATASETS: Mapping[str, str] = MappingProxyType(
    {
        "cifar10": "CIFAR-10",
        "cifar100": "CIFAR-100",
        "fashion_mnist": "F-MNIST",
        "svhn": "SVHN",
        "imagenet": "ImageNet",
        "mnist": "MNIST",
        "digits": "digits",
        "cifar": "CIFAR",
    }
)


def look_of(method: str) -> Look:
    """The look of a method; unknown ones are grey and go by the name they have.

    >>> look_of("iam-d").name, look_of("mine").name
    ('IAM-D', 'mine')
    """
    return LOOKS.get(method) or Look(method, "#777777", "x")


def dataset_name(name: str) -> str:
    """A data set as the paper writes it."""
    return DATASETS.get(name, name)
