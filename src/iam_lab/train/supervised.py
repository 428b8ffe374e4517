"""Classification with labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import torch_iam as iam
from iam_lab.recipes.schema import Config
from iam_lab.train.data import RunData, build_data
from iam_lab.train.evaluate import errors
from iam_lab.train.measure import measure
from iam_lab.train.network import network_to_train
from iam_lab.train.numerics import autocast, seed_for
from iam_lab.train.objectives import build_objective, divergence_of
from iam_lab.train.task import Pause
from torch_iam.inputs import logits_of
from torch_iam.objectives.base import Criterion

Labelled = tuple[Any, Tensor]
"""What the model is called with, and the labels."""


class Supervised:
    """Cross-entropy on labelled images, by any objective; see :class:`~iam_lab.train.task.Task`.

    Args:
        config: of the run.
        device: where model and data live.
        data: instead of what the config's data fields stand for.
    """

    def __init__(self, config: Config, device: torch.device, *, data: RunData | None = None) -> None:
        self.config, self.device = config, device
        self.data = build_data(config, device) if data is None else data
        self.divergence = divergence_of(config)
        self.model = network_to_train(config, self.data.spec, self.data.image_size, device)
        # Every size of batch has kernels of its own: those for any size, which torch would go over to, are slower.
        called = torch.compile(self.model, dynamic=False) if config.training.compile else self.model
        assert isinstance(called, nn.Module)  # torch.compile also takes functions
        self.called = called
        seed = seed_for(config.seed, "ascent")
        self.objective = build_objective(called, config.objective, seed, self.divergence)
        self.criterion: Criterion = nn.CrossEntropyLoss(label_smoothing=config.training.label_smoothing)
        self.batches_per_epoch = len(self.data.train)
        self.images_per_batch = config.training.batch_size // config.training.accumulate

    def batches(self) -> Iterator[Labelled]:
        """Augmented images and labels."""
        return self.data.train.forever()

    def backward(
        self, batch: Labelled, *, loss_scale: float = 1.0, scaler: torch.amp.GradScaler | None = None
    ) -> iam.Step:
        """The objective's gradient."""
        inputs, labels = batch
        with autocast(self.config.training, self.device):
            return self.objective.backward(
                inputs, labels, self.criterion, loss_scale=loss_scale, scaler=scaler
            )

    def watch(self, batch: Labelled, step: iam.Step) -> Mapping[str, Tensor]:
        """The error on the augmented batch, in percent; of the labelled images, which come first."""
        labels = batch[1]
        wrong = logits_of(step.outputs)[: len(labels)].argmax(1) != labels
        return {"train_error": 100 * wrong.float().mean()}

    def evaluate(self, model: nn.Module, pause: Pause) -> dict[str, float]:
        """Error and loss on the test images, on the validation images, and on training images if wanted."""
        counts = {split: -1 for split in self.data.held if split != "train"}
        if self.config.evaluation.train_images:
            counts["train"] = self.config.evaluation.train_images
        found: dict[str, float] = {}
        for split, count in counts.items():
            with autocast(self.config.training, self.device):
                judged = errors(model, self.data.first(split, count), pause)
            prefix = "train_clean" if split == "train" else split
            found |= {f"{prefix}_{name}": value for name, value in judged.items()}
        return found

    def measure(self, model: nn.Module, pause: Pause) -> dict[str, float | None]:
        """S_rho and lambda_max(F) on held-out images."""
        recipe, seed = self.config.measurement, self.config.seed
        return measure(model, self.data, recipe, seed, pause, self.divergence)

    def counts(self) -> dict[str, int]:
        """Steps whose ascent found no direction."""
        return {"failed_ascents": int(self.objective.failed_ascents)}

    def files(self) -> Mapping[str, Mapping[str, Any]]:
        """None: everything about the data is in the config."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Data and objective."""
        return {"data": self.data.train.state_dict(), "objective": self.objective.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.data.train.load_state_dict(state["data"])
        self.objective.load_state_dict(state["objective"])
