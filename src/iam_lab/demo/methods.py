"""The five ways to learn that the demo compares."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

import torch_iam as iam
from iam_lab.report.palette import Look, look_of


@dataclass(frozen=True)
class Method:
    """One way to learn.

    Attributes:
        key: its name in files.
        look: name, colour and marker on the page.
        what: what it descends, for the table.
        unlabelled: whether it sees the images without a label.
    """

    key: str
    look: Look
    what: str
    unlabelled: bool = False

    def objective(self, model: nn.Module, options: dict[str, float], seed: int) -> iam.Objective:
        """The objective, with the chosen rho and beta."""
        if self.key == "plain":
            return iam.Plain(model)
        if self.key == "sam":
            return iam.SAM(model, options["rho"])
        if self.key == "iam-s":
            return iam.IAMS(model, options["rho"], seed=seed)
        return iam.IAMD(model, options["rho"], options["beta"], seed=seed)


METHODS: tuple[Method, ...] = (
    Method("plain", Look("Plain", look_of("sgd").colour, "o"), "the loss"),
    Method("sam", look_of("sam"), "the loss where the loss is worst nearby"),
    Method("iam-s", look_of("iam-s"), "the loss where the outputs change most nearby"),
    Method("iam-d", look_of("iam-d"), "the loss + β S"),
    Method(
        "iam-d-unlabelled",
        Look("IAM-D + unlabelled", "#a3568b", "D"),
        "the loss + β S, with S on the 900 images without a label too",
        unlabelled=True,
    ),
)


def method(key: str) -> Method:
    """The method of this key.

    >>> method("iam-s").look.name
    'IAM-S'
    """
    return next(found for found in METHODS if found.key == key)
