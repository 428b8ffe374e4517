"""What a criterion does over a batch, found by trying: a mean or a sum, and of which terms."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from torch_iam import checks
from torch_iam.inputs import Inputs, Output, batch_size, rows, tensors_in
from torch_iam.spectrum.criterion import SLACK, Criterion, evaluated, scrambled

Batch = tuple[Inputs, Any]

SINGLES = 64
"""Examples that are tried one by one."""
IGNORED = -100
"""The target that PyTorch's losses leave out where they are not told another."""


@dataclass(frozen=True)
class Reduction:
    """How the value of a criterion on a batch becomes a sum of terms, by which batches are added up.

    Attributes:
        kind: ``"mean"`` or ``"sum"`` of the terms.
        positions: whether every position of an example is a term (targets ``[B, T]`` to logits
            ``[B, T, V]``), as it is for the divergence; else every example is one.
        ignored: the target of what is no term; None where all are.
        refused: what was found where it is neither; then any factor will do, for one batch alone.
    """

    kind: str = "mean"
    positions: bool = False
    ignored: int | None = None
    refused: str | None = None

    def terms(self, targets: Any, size: int) -> Tensor:
        """How many terms each example of a batch is, ``[B]``."""
        if not _are_classes(targets, self.positions):
            device = targets.device if isinstance(targets, Tensor) else None
            return torch.ones(size, device=device)
        counted = torch.ones_like(targets) if self.ignored is None else targets != self.ignored
        return counted.reshape(size, -1).sum(1).float()


def reduction_of(
    criterion: Criterion,
    batches: Sequence[Batch],
    evaluate: Callable[[Inputs], Output],
    read: Callable[[Output], Tensor],
) -> Reduction:
    """What ``criterion`` does over the examples of a batch.

    It is evaluated on whole batches, their halves, examples of several batches together and single ones, at
    random numbers in place of the model's answers: with a head of zeros, a residual of zero or batches of one
    class each a weighted mean would pass for a plain one. The model is evaluated on one batch of each shape.

    Args:
        criterion: ``(output, targets) -> scalar``.
        batches: inputs and targets.
        evaluate: the model's answer to inputs.
        read: the tensor in an answer that counts.
    """
    tried: list[_Comparison] = []
    positions = False
    for places in _by_shape(batches):
        largest = max(places, key=lambda place: batch_size(batches[place][0]))
        inputs, targets = batches[largest]
        answer = evaluate(inputs)
        positions = _per_position(targets, read(answer))
        whole = _Whole(answer, targets, batch_size(inputs), largest)
        tried += _tried(criterion, [batches[place] for place in places], whole, positions)
    named = getattr(criterion, "ignore_index", None)
    ignorable = IGNORED if named is None else named
    nothing = not tried and all(_are_all(targets, ignorable) for _, targets in batches)
    for ignored in (ignorable,) if nothing else (None, ignorable):
        found = Reduction("mean", positions, ignored)
        if all(one.is_mean(found) for one in tried):
            return found
    if all(one.is_sum() for one in tried):
        found = Reduction("sum", positions, ignorable)
        return found if all(one.ignores(found) for one in tried) else Reduction("sum", positions)
    plain = Reduction("mean", positions)
    first = next(one for one in tried if not one.is_mean(plain))
    return Reduction(refused=first.described(plain))


@dataclass(frozen=True)
class _Whole:
    """The model's answer to one batch, and its place in the data."""

    answer: Output
    targets: Any
    size: int
    place: int


@dataclass(frozen=True)
class _Comparison:
    """The criterion on some examples, then on each part of them."""

    values: list[float]
    cuts: list[tuple[int, int]]
    targets: Any
    size: int

    def is_mean(self, reduction: Reduction) -> bool:
        whole, parts = self._weighted(reduction)
        scale = abs(whole) + sum(map(abs, parts))
        return abs(whole - sum(parts)) <= SLACK * scale  # never where one is NaN

    def is_sum(self) -> bool:
        whole, *parts = self.values
        return abs(whole - sum(parts)) <= SLACK * (abs(whole) + sum(map(abs, parts)))

    def ignores(self, reduction: Reduction) -> bool:
        """Whether a sum is 0 over what is no term."""
        terms = reduction.terms(self.targets, self.size)
        blank = [
            value for (a, b), value in zip(self.cuts, self.values[1:], strict=True) if not terms[a:b].any()
        ]
        return not any(blank)

    def described(self, reduction: Reduction) -> str:
        parts = self._weighted(reduction)[1]
        terms = max(float(reduction.terms(self.targets, self.size).sum()), 1.0)
        return (
            f"it gives {self.values[0]:.6g} on {self.size} examples, where its values on {len(self.cuts)} parts "
            f"of them have the mean {sum(parts) / terms:.6g} and the sum {sum(self.values[1:]):.6g}"
        )

    def _weighted(self, reduction: Reduction) -> tuple[float, list[float]]:
        terms = reduction.terms(self.targets, self.size)
        counts = [float(terms[a:b].sum()) for a, b in [(0, self.size), *self.cuts]]
        whole, *parts = [n * value if n else 0.0 for n, value in zip(counts, self.values, strict=True)]
        return whole, parts


def _tried(criterion: Criterion, group: Sequence[Batch], one: _Whole, positions: bool) -> list[_Comparison]:
    """At random answers to the whole group; where these are not taken, at the model's to one batch of it."""
    answer, targets, size = one.answer, one.targets, one.size
    try:
        mixed, count = _mixture(group)
        sets = [(wanted, batch_size(inputs)) for inputs, wanted in group]
        found = [_compared(criterion, scrambled(answer, size, n), t, n, _halves(n)) for t, n in sets if n > 1]
        if positions:
            found.append(
                _compared(criterion, scrambled(answer, size, count), _uneven(mixed), count, _singles(count))
            )
        found.append(_compared(criterion, scrambled(answer, size, count), mixed, count, _singles(count)))
        if math.isfinite(found[-1].values[0]):
            return [made for made in found if math.isfinite(made.values[0])]
    except Exception:  # whatever a criterion raises on what is no distribution, or too large, or negative
        pass
    value = float(evaluated(criterion, answer, targets, one.place))
    if not math.isfinite(value):
        return []  # the product will say which batch is not finite
    try:
        return [_compared(criterion, answer, targets, size, _halves(size))] if size > 1 else []
    except Exception:  # an answer that cannot be cut
        return [_Comparison([value, math.nan], [(0, size)], targets, size)]


def _compared(
    criterion: Criterion, answer: Output, targets: Any, size: int, cuts: list[tuple[int, int]]
) -> _Comparison:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of single examples whose shapes broadcast
        values = [
            criterion(rows(answer, a, b, size), rows(targets, a, b, size)) for a, b in [(0, size), *cuts]
        ]
    for value in values:
        checks.scalar_loss(value)
    return _Comparison(torch.stack([v.reshape(()).double() for v in values]).tolist(), cuts, targets, size)


def _mixture(group: Sequence[Batch]) -> tuple[Any, int]:
    """Targets of examples from all batches, two at least; of classes one example of each."""
    sizes = [batch_size(inputs) for inputs, _ in group]
    total, first = sum(sizes), group[0][1]
    if isinstance(first, Tensor) and _are_classes(first, False):
        labels = torch.cat([targets for _, targets in group])
        kinds, which = torch.unique(labels, return_inverse=True)
        places = torch.arange(total, device=labels.device)
        candidates = torch.full_like(kinds, total).scatter_reduce(0, which, places, "amin").tolist()
    else:
        candidates = list(range(total))
    if len(candidates) > SINGLES:
        candidates = [candidates[round(i * (len(candidates) - 1) / (SINGLES - 1))] for i in range(SINGLES)]
    chosen = candidates if len(candidates) > 1 else [*candidates, (candidates[0] + 1) % total]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    picked = []
    for place in chosen:
        at = max(i for i, start in enumerate(starts) if start <= place)
        row = place - starts[at]
        picked.append(rows(group[at][1], row, row + 1, sizes[at]))
    return tree_map(lambda *leaves: _joined(leaves), *picked), len(picked)


def _uneven(targets: Tensor) -> Tensor:
    """The same class numbers in ascending order: what is ignored in every example alike no longer is."""
    return targets.flatten().sort().values.view_as(targets)


def _joined(leaves: Sequence[Any]) -> Any:
    first = leaves[0]
    return torch.cat(list(leaves)) if isinstance(first, Tensor) and first.ndim else first


def _by_shape(batches: Sequence[Batch]) -> list[list[int]]:
    """The places of batches whose examples have one shape, and could be one batch."""
    groups: dict[Any, list[int]] = {}
    for place, (inputs, targets) in enumerate(batches):
        shapes = [tuple(t.shape[1:]) for tree in (inputs, targets) for t in tensors_in(tree)]
        groups.setdefault(tuple(shapes), []).append(place)
    return list(groups.values())


def _are_classes(targets: Any, positions: bool) -> bool:
    """Whether targets are class numbers, of examples or of all their positions."""
    if not isinstance(targets, Tensor) or targets.is_floating_point():
        return False
    return targets.ndim == 1 or (positions and targets.ndim > 1)


def _are_all(targets: Any, ignored: int) -> bool:
    return _are_classes(targets, True) and bool((targets == ignored).all())


def _per_position(targets: Any, logits: Tensor) -> bool:
    """Whether there is a class number for every position of the logits, wherever their class dimension is."""
    if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.ndim < 2:
        return False
    shape = list(logits.shape)
    return logits.ndim > 2 and list(targets.shape) in (shape[:-1], [shape[0], *shape[2:]])


def _halves(size: int) -> list[tuple[int, int]]:
    return list(pairwise((0, size // 2, size)))


def _singles(size: int) -> list[tuple[int, int]]:
    return [(i, i + 1) for i in range(size)]
