"""Batches with labels, in the forms that users have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_iam.inputs import LABEL_KEYS, Inputs, batch_size, batches_of, tensors_in


def labelled_batches_of(
    data: Iterable[Any],
    split: Callable[[Any], tuple[Inputs, Any]] | None = None,
) -> list[tuple[Inputs, Any]]:
    """All batches of ``data`` as ``(inputs, targets)``.

    A batch is ``(x, y, ...)`` or a mapping with a label in it; ``split`` says otherwise. A tuple
    ``(x, y)`` of tensors is a single batch.
    """
    whole = isinstance(data, Mapping) or (isinstance(data, tuple) and _is_inputs(next(iter(data), None)))
    if isinstance(data, Tensor) or not isinstance(data, Iterable):
        raise _missing(data)
    found = []
    with torch.random.fork_rng(devices=[]):  # a DataLoader draws a seed from the global stream
        for index, batch in enumerate([data] if whole else data):
            inputs, targets = split(batch) if split else _pair(batch)
            if targets is None:
                raise _missing(batch)
            size = batch_size(inputs)
            wrong = [len(label) for label in tensors_in(targets) if label.ndim and len(label) != size]
            if wrong or not size:
                labels = wrong[0] if wrong else size
                raise ValueError(
                    f"Batch {index} holds {size} examples and {labels} labels: as many of each, one at least."
                )
            found.append((inputs, targets))
    if not found:
        raise ValueError("There is no batch: the iterable is empty (or an iterator already used up).")
    return found


def _pair(batch: Any) -> tuple[Inputs, Any]:
    if isinstance(batch, Mapping):
        label = next((key for key in LABEL_KEYS if key in batch), None)
        if label is not None:
            return batches_of({k: v for k, v in batch.items() if k not in LABEL_KEYS})[0], batch[label]
    elif isinstance(batch, Sequence) and len(batch) > 1 and _is_inputs(batch[0]):
        return batch[0], batch[1]
    raise _missing(batch)


def _is_inputs(found: Any) -> bool:
    return isinstance(found, Tensor | Mapping)


def _missing(found: Any) -> TypeError:
    kind = (
        f"a mapping with keys {sorted(map(str, found))}"
        if isinstance(found, Mapping)
        else type(found).__name__
    )
    return TypeError(
        f"Labels are missing: the Hessian and the empirical Fisher matrix are those of a loss and take batches "
        f"(inputs, labels), found {kind}. Say how with split=, for example split=lambda b: (b.x, b.y); or take "
        "FisherOperator, which needs no labels."
    )
