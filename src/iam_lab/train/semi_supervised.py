"""Classification with few labels: the loss sees the labelled images, the inconsistency all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

import torch_iam as iam
from iam_lab.errors import RecipeError
from iam_lab.recipes.schema import Config
from iam_lab.train.data import RunData
from iam_lab.train.few_labels import PairedBatches, few_labels
from iam_lab.train.numerics import autocast
from iam_lab.train.supervised import Labelled, Supervised


class SemiSupervised(Supervised):
    """Cross-entropy on a few labelled images; IAM-D and IAM-S also see images without labels.

    Both kinds lie in one clean forward pass, so that BatchNorm normalises them together, there and in the
    perturbed passes, and its running statistics are updated once a step. Objectives that have no use for
    unlabelled images (plain, SAM) train on the labelled ones alone, as many steps; the others are then not
    even drawn.

    Args:
        config: of the run.
        device: where model and data live.
    """

    def __init__(self, config: Config, device: torch.device) -> None:
        data, self.paired = self.new_data(config, device)
        super().__init__(config, device, data=data)
        if config.objective.sub_batch is not None:
            raise RecipeError(
                "objective.sub_batch: sub-batches of images with and without labels are not supported; leave it out."
            )
        if self.paired.joined:
            self.images_per_batch += config.semi.batch_size // config.training.accumulate

    def new_data(self, config: Config, device: torch.device) -> tuple[RunData, PairedBatches]:
        """Images with and without labels."""
        return few_labels(config, device)

    def backward(
        self, batch: Labelled, *, loss_scale: float = 1.0, scaler: torch.amp.GradScaler | None = None
    ) -> iam.Step:
        """The objective's gradient."""
        (images, unlabelled), labels = batch
        with autocast(self.config.training, self.device):
            return self.objective.backward(
                images, labels, self.criterion, unlabelled, loss_scale=loss_scale, scaler=scaler
            )

    def files(self) -> Mapping[str, Mapping[str, Any]]:
        """Which images have labels, by their indices in the training set as it is stored."""
        of = f"indices of images in the training set of {self.config.data.name} as it is stored, from 0"
        return {"labels.json": {"labelled": self.paired.chosen.tolist(), "of": of}}
