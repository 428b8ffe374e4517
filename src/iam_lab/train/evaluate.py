"""Errors of a classifier."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from iam_lab.train.task import Pause
from torch_iam.guards import mode
from torch_iam.inputs import logits_of

TOP = 5


@torch.no_grad()
def errors(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], pause: Pause = lambda: None
) -> dict[str, float]:
    """Cross-entropy, error and, with more than ten classes, top-5 error in percent, over all batches.

    >>> model = nn.Linear(2, 3)
    >>> sorted(errors(model, [(torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]))]))
    ['error', 'loss']
    """
    sums: Tensor | None = None
    count, classes = 0, 0
    with mode(model, training=False):
        for inputs, labels in batches:
            pause()
            logits = logits_of(model(inputs)).float()
            classes = logits.shape[1]
            wrong = logits.argmax(1) != labels
            among = logits.topk(min(TOP, classes), dim=1).indices == labels[:, None]
            row = torch.stack(
                [
                    F.cross_entropy(logits, labels, reduction="sum"),
                    wrong.sum().float(),
                    (~among.any(1)).sum().float(),
                ]
            ).double()
            sums = row if sums is None else sums + row
            count += len(labels)
    if sums is None:
        raise ValueError("There is no batch to evaluate on.")
    loss, wrong_ones, far_off = (sums / count).tolist()
    found = {"loss": loss, "error": 100 * wrong_ones}
    return found | {"top5_error": 100 * far_off} if classes > 10 else found
