"""SimCLR: representations learned from two views of every image, without any label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torch_iam as iam
from iam_lab.data import DeviceData
from iam_lab.data.augment import Views, build_augment
from iam_lab.errors import RecipeError
from iam_lab.models import Encoder
from iam_lab.recipes.schema import Config
from iam_lab.train.data import RunData, build_data
from iam_lab.train.few_labels import in_memory
from iam_lab.train.numerics import autocast, seed_for
from iam_lab.train.probe import features, linear_probe
from iam_lab.train.supervised import Labelled, Supervised
from iam_lab.train.task import Pause
from torch_iam.guards import no_autocast
from torch_iam.inputs import logits_of


@dataclass(frozen=True)
class NTXent:
    r"""The normalised, temperature-scaled cross-entropy of SimCLR (Chen et al., 2020).

    .. math:: \ell_i = -\log \frac{\exp(\cos(z_i, z_{p(i)}) / \tau)}{\sum_{j \ne i} \exp(\cos(z_i, z_j) / \tau)}

    Among all other views of the batch each one is to find its partner p(i): a classification whose classes
    are the views of the batch, and whose label is the partner.

    Args:
        temperature: tau.

    Shapes: projections ``[B, D]`` and partners int64 ``[B]`` to a scalar.

    >>> views = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    >>> f"{float(NTXent(0.5)(views, partners(2, views.device))):.4f}"  # log(1 + 2 exp(-2))
    '0.2395'
    """

    temperature: float = 0.5

    def __call__(self, projections: Tensor, partners: Tensor) -> Tensor:
        """The mean over all views."""
        return F.cross_entropy(self.similarities(projections), partners)

    def similarities(self, projections: Tensor) -> Tensor:
        """Cosines over the temperature, float32 ``[B, B]``; a view is no candidate for itself."""
        unit = F.normalize(projections.float(), dim=1)
        itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
        with no_autocast(unit.device):  # which would multiply in low precision
            return (unit @ unit.T / self.temperature).masked_fill(itself, -torch.inf)


def partners(images: int, device: torch.device) -> Tensor:
    """Index of the other view of the same image, where the first views of all images come first.

    >>> partners(3, torch.device("cpu"))
    tensor([3, 4, 5, 0, 1, 2])
    """
    return torch.arange(2 * images, device=device).roll(images)


class SimCLR(Supervised):
    """Contrastive learning by any objective; IAM-D compares what the loss itself is made of.

    Both views of a batch pass through encoder and projector together, in one clean pass with one BatchNorm
    batch, which ascent and perturbed pass see again; running statistics are updated once a step. The
    divergence is that of :class:`~torch_iam.SimilarityKL`: by default between the rows of the similarity
    matrix, the distributions over candidates that NT-Xent trains.

    Labels are looked at by the linear probe alone, which stands in for an evaluation: metrics have its
    ``test_error``, every ``evaluation.every`` epochs.

    Args:
        config: of the run.
        device: where model and data live.
    """

    def __init__(self, config: Config, device: torch.device) -> None:
        _check(config)
        super().__init__(config, device, data=_two_views(config, device))
        _check_measured(config, self.data)
        self.loss = NTXent(config.simclr.temperature)
        self.criterion = lambda output, labels: self.loss(logits_of(output), labels)

    def backward(
        self, batch: Labelled, *, loss_scale: float = 1.0, scaler: torch.amp.GradScaler | None = None
    ) -> iam.Step:
        """The objective's gradient on both views."""
        return super().backward(_paired(batch), loss_scale=loss_scale, scaler=scaler)

    def watch(self, batch: Labelled, step: iam.Step) -> Mapping[str, Tensor]:
        """How many views take another one for their partner, in percent.

        The matrix is made anew: of a step's operations 0.35 % for ``digits-simclr-sgd``, 0.02 % for a ResNet-18.
        """
        found = self.loss.similarities(logits_of(step.outputs)).argmax(1)
        wrong = found != partners(len(found) // 2, found.device)
        return {"train_match_error": 100 * wrong.float().mean()}

    def evaluate(self, model: nn.Module, pause: Pause) -> dict[str, float]:
        """Errors of the linear probe."""
        encoder = cast(Encoder, model)
        with autocast(self.config.training, self.device):
            found = {split: features(encoder, self.data, split, pause) for split in self.data.held}
        seed = seed_for(self.config.seed, "probe")
        return linear_probe(found, self.data.spec.classes, self.config.probe, seed, pause)


def _two_views(config: Config, device: torch.device) -> RunData:
    data = build_data(config, device)
    images, augment = in_memory(data)
    if not build_augment(config.data.augment, data.spec).operations:
        raise RecipeError(
            f"data.augment {config.data.augment} draws nothing, so that both views of an image would be the same; "
            "choose simclr, or crop-strong for symbols."
        )
    views: DeviceData[Any] = DeviceData(
        images, config.training.batch_size, Views((augment, augment)), seed=seed_for(config.seed, "data")
    )
    return replace(data, train=views)


def _paired(batch: Labelled) -> tuple[Tensor, Tensor]:
    views, _ = batch
    return torch.cat(views), partners(len(views[0]), views[0].device)


def _check_measured(config: Config, data: RunData) -> None:
    """A measurement compares the images of a pass with each other: none may be alone."""
    recipe, held = config.measurement, data.held.get(config.measurement.split)
    if not recipe.every or held is None or config.simclr.axis != "similarity":
        return
    count = held.size if recipe.images < 0 else min(recipe.images, held.size)
    batches = _parts(count, config.evaluation.batch_size)
    if any(1 in _parts(batch, recipe.batch_size) for batch in batches):
        raise RecipeError(
            f"measurement: {count} images in batches of evaluation.batch_size {config.evaluation.batch_size}, and "
            f"these in passes of measurement.batch_size {recipe.batch_size}, leave one to a pass of its own, and "
            "SimCLR is measured by how the images of a pass are like each other. Choose other sizes."
        )


def _parts(count: int, size: int) -> list[int]:
    return [min(size, count - start) for start in range(0, count, size)]


def _check(config: Config) -> None:
    if config.training.batch_size < 2:
        raise RecipeError(
            "training.batch_size: among the views of one image each has its partner for certain; SimCLR learns from "
            f"2 images or more, found {config.training.batch_size}."
        )
    if config.objective.options.get("batch_fraction", 1) != 1:
        raise RecipeError(
            "objective.options batch_fraction: the first rows of a batch are the first views, and an ascent on these "
            "alone would see no view beside its partner. Leave it out."
        )
    if config.training.label_smoothing:
        raise RecipeError(
            f"training.label_smoothing is {config.training.label_smoothing:g}, but NT-Xent has no labels to "
            "smooth: a view's partner is not a class. Set it to 0."
        )
    for wrong, name in (
        (config.training.accumulate > 1, "training.accumulate"),
        (config.objective.sub_batch is not None, "objective.sub_batch"),
    ):
        if wrong:
            raise RecipeError(
                f"{name}: the loss of SimCLR compares all views of a batch with each other; of parts of a "
                "batch it is another loss. Leave it out, and choose a smaller training.batch_size if need be."
            )
    if config.measurement.every and config.measurement.hessian:
        raise RecipeError(
            "measurement.hessian needs a loss with labels, which SimCLR has none of: leave it out."
        )
