"""A linear classifier on frozen features: what an encoder that has seen no label is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from iam_lab.models import Encoder
from iam_lab.recipes.few_labels import Probe
from iam_lab.train.data import RunData
from iam_lab.train.evaluate import errors
from iam_lab.train.task import Pause
from torch_iam.guards import mode

Labelled = tuple[Tensor, Tensor]
"""Features ``[N, F]`` and labels ``[N]``."""


def linear_probe(
    found: Mapping[str, Labelled], classes: int, recipe: Probe, seed: int, pause: Pause
) -> dict[str, float]:
    """Train a linear classifier on the features of all training images, and judge it on all splits.

    The classifier begins at zero, which for a convex loss is as good as anywhere, and batches are drawn by a
    generator of its own: a probe depends on features and seed alone, and leaves no trace in the training.

    Args:
        found: features and labels by split; ``train`` is trained on.
        classes: number of classes.
        recipe: how the classifier is trained.
        seed: of the order of the images.
        pause: called before each batch.

    Returns:
        ``test_error``, ``test_loss``, the same of ``validation`` if there is such a split, and
        ``probe_train_error`` and ``probe_train_loss``.

    >>> two = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    >>> probed = linear_probe({"train": two, "test": two}, 2, Probe(), 0, lambda: None)
    >>> probed["test_error"], "probe_train_loss" in probed
    (0.0, True)
    """
    inputs, labels = found["train"]
    classifier = _zero(inputs.shape[1], classes, inputs.device)
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    generator = Generator().manual_seed(seed)
    for _ in range(recipe.epochs):
        order = torch.randperm(len(inputs), generator=generator).to(inputs.device)
        for rows in order.split(recipe.batch_size):  # type: ignore[no-untyped-call]
            pause()
            optimizer.zero_grad()
            F.cross_entropy(classifier(inputs[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    told: dict[str, float] = {}
    for split, judged in found.items():
        prefix = "probe_train" if split == "train" else split
        told |= {f"{prefix}_{name}": value for name, value in errors(classifier, [judged], pause).items()}
    return told


@torch.no_grad()
def features(encoder: Encoder, data: RunData, split: str, pause: Pause) -> Labelled:
    """Features of a split in float32, of images without augmentation, in evaluation mode.

    Args:
        encoder: whose features count; its head does not.
        data: the images.
        split: which of them.
        pause: called before each batch.
    """

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in data.first(split, -1):
            pause()
            yield encoder.features(images).float(), labels

    with mode(encoder, training=False):
        found = list(batches())
    return torch.cat([part for part, _ in found]), torch.cat([labels for _, labels in found])


def _zero(inputs: int, classes: int, device: torch.device) -> nn.Linear:
    """A linear map to zero, made without a draw from the global random stream."""
    with torch.device("meta"):
        made = nn.Linear(inputs, classes)
    made = made.to_empty(device=device)
    for weight in made.parameters():
        nn.init.zeros_(weight)
    return made
