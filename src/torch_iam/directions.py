"""Directions in weight space: lists of tensors, and the arithmetic on them that waits for no GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Direction: TypeAlias = list[Tensor]


def copy_of(direction: Direction) -> Direction:
    """The same direction in new storage."""
    return [part.clone() for part in direction]


def total_norm(tensors: Sequence[Tensor]) -> Tensor:
    """Euclidean norm of all tensors together, summed in double precision where the dtype is lower.

    The squares of small gradients would vanish in single precision; adding a small number under the root
    to guard against zero would shorten delta instead.
    """
    norms: list[Tensor] = []
    for same in by_dtype(tensors):
        exact = same[0].dtype == torch.float64 or same[0].device.type == "mps"  # which has no float64
        precise = None if exact else torch.float64
        norms += torch._foreach_norm(same, 2, dtype=precise)
    wide = torch.promote_types(tensors[0].dtype, torch.float32)
    length: Tensor = torch.linalg.vector_norm(torch.stack(norms)).to(wide)
    return length


def by_dtype(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """The tensors in lists of one dtype each: a model may keep its norms in float32 beside bfloat16."""
    kinds: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault(tensor.dtype, []).append(tensor)
    return list(kinds.values())


def scale_(tensors: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply every tensor by ``factor`` in place, which need not be a number of the tensors' dtype.

    A small gradient in float16 is scaled by more than float16 can hold. There a power of two, which
    rounds nothing, comes first, and then the rest.
    """
    for same in by_dtype(tensors):
        rest = factor
        if same[0].dtype == torch.float16:
            _, exponent = torch.frexp(factor.float())
            power = torch.ldexp(torch.ones_like(factor), exponent.clamp(-14, 14))
            torch._foreach_mul_(same, power.to(torch.float16))
            rest = factor / power
        torch._foreach_mul_(same, rest.to(same[0].dtype))


def scaled(tensors: Sequence[Tensor], factor: Tensor) -> Direction:
    """Every tensor times ``factor`` in new storage, as :func:`scale_` does it."""
    kinds = {tensor.dtype for tensor in tensors}
    if len(kinds) == 1 and torch.float16 not in kinds:
        return list(torch._foreach_mul(list(tensors), factor.to(tensors[0].dtype)))
    result = copy_of(list(tensors))
    scale_(result, factor)
    return result


def clear_unless(ok: Tensor, tensors: Sequence[Tensor]) -> None:
    """Set every tensor to zero in place unless ``ok``, without waiting for its value.

    NaN times 0 is NaN, so the bits are multiplied as integers.
    """
    for same in by_dtype(tensors):
        bits = _bits(same)
        torch._foreach_mul_(bits, ok.to(bits[0].dtype))


def add_where(ok: Tensor, tensors: Sequence[Tensor], more: Sequence[Tensor]) -> None:
    """Add ``more`` to the tensors in place where ``ok``, which NaN in it does not pass."""
    for same, added in zip(by_dtype(tensors), by_dtype(more), strict=True):
        bits = _bits(added)
        kept = torch._foreach_mul(bits, ok.to(bits[0].dtype))
        torch._foreach_add_(same, [part.view(same[0].dtype) for part in kept])


def _bits(tensors: Sequence[Tensor]) -> list[Tensor]:
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensors[0].element_size()]
    return [tensor.view(integer) for tensor in tensors]


def aligned(tensor: Tensor, weight: Tensor) -> Tensor:
    """The tensor with the strides of ``weight``: one that differs sends kernels over many tensors the slow way.

    Where only dimensions of size 1 differ, as between two layouts of a 1 x 1 filter, nothing is copied.
    """
    if tensor.stride() == weight.stride():
        return tensor
    sides = zip(tensor.shape, tensor.stride(), weight.stride(), strict=True)
    if all(size == 1 or mine == wanted for size, mine, wanted in sides):
        return tensor.as_strided(weight.shape, weight.stride())
    return torch.empty_like(weight, dtype=tensor.dtype).copy_(tensor)


def relative_start(weights: Sequence[Tensor]) -> float:
    """Share of the weights' norm at which to start the ascent: sqrt(eps), at most 1/64.

    The square root balances rounding against curvature, as in any finite difference. In bfloat16 and
    TF32 it would leave the neighborhood; 1/64 is still two roundings of a bfloat16 weight.
    """
    return min(math.sqrt(resolution(weights)), 1 / 64)


def compute_dtype(weight: Tensor) -> torch.dtype:
    """What is computed in with ``weight`` here and now: under autocast its dtype."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def resolution(weights: Sequence[Tensor]) -> float:
    """Relative rounding of what is computed here and now with the coarsest of ``weights``.

    Autocast and TF32 count.
    """

    def rounding(weight: Tensor) -> float:
        dtype = compute_dtype(weight)
        if dtype == torch.float32 and weight.is_cuda:
            return 2.0**-10  # convolutions use TF32 unless told otherwise
        return torch.finfo(dtype).eps

    return max(rounding(same[0]) for same in by_dtype(weights))


def gaussian(weights: Sequence[Tensor], generator: torch.Generator) -> Direction:
    """Independent normal numbers in the layout of the weights, in one draw for each dtype and device."""
    kinds = dict.fromkeys((weight.device, weight.dtype) for weight in weights)
    drawn: dict[int, Tensor] = {}
    for device, dtype in kinds:
        rows = [i for i, w in enumerate(weights) if (w.device, w.dtype) == (device, dtype)]
        sizes = [weights[i].numel() for i in rows]
        flat = torch.randn(sum(sizes), generator=generator, device=generator.device, dtype=dtype).to(device)
        for i, piece in zip(rows, torch.split(flat, sizes), strict=True):
            drawn[i] = _in_layout_of(weights[i], piece)
    return [drawn[i] for i in range(len(weights))]


def _in_layout_of(weight: Tensor, piece: Tensor) -> Tensor:
    strided = torch.empty_like(weight).stride()  # the weight's own where it is dense, else contiguous
    return piece.as_strided(weight.shape, strided, piece.storage_offset())
