"""What a criterion is, and what is tried on it before its derivatives are trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from torch_iam import checks
from torch_iam.inputs import Output, mapped, tensors_in

Criterion = Callable[[Any, Any], Tensor]

SLACK = 1e-4
"""Of a mean in single precision, relative."""


def evaluated(criterion: Criterion, answer: Output, targets: Any, batch: int) -> Tensor:
    """The criterion's value on a batch, or an error that names the batch."""
    try:
        value = criterion(answer, targets)
    except IndexError as error:
        raise ValueError(
            f"Batch {batch}: the criterion does not take these targets: {error} {_labels(answer, targets)}"
        ) from error
    checks.scalar_loss(value)
    return value


def _labels(answer: Output, targets: Any) -> str:
    """Which class numbers there are, and which there may be."""
    labels = [t for t in tensors_in(targets) if t.numel() and not t.is_floating_point()]
    spans = ", ".join(f"{int(t.min())} to {int(t.max())}" for t in labels)
    shapes = [list(t.shape) for t in tensors_in(answer)]
    flat = len(shapes) == 1 and len(shapes[0]) == 2
    last = f"{shapes[0][1] - 1}, of {shapes[0][1]}" if flat else "the number of outputs - 1"
    return f"They go from {spans}; the model's answer is {shapes}. Classes are counted from 0 to {last}."


def refuse_own_weights(
    criterion: Criterion, answer: Output, targets: Any, weights: Mapping[str, Tensor]
) -> None:
    """An error where the criterion reads weights by itself: products would not differentiate it in them."""
    with torch.enable_grad():
        value = criterion(mapped(Tensor.detach, answer), targets)
        if not value.requires_grad:
            return
        found = torch.autograd.grad(value, list(weights.values()), allow_unused=True)
    read = [repr(name) for name, slope in zip(weights, found, strict=True) if slope is not None]
    if read:
        more = f" and {len(read) - 3} more" if len(read) > 3 else ""
        raise ValueError(
            f"The criterion reads weights of the model by itself ({', '.join(read[:3])}{more}), past the model's "
            "answer, and its curvature in them would be left out. Write a criterion of the answer alone: c times the "
            "sum of squares, for one, adds 2 c to every eigenvalue of the Hessian. Or let the model return the term "
            "beside its logits, for HessianOperator."
        )


def scrambled(answer: Output, size: int, wanted: int) -> Output:
    """An answer to ``wanted`` examples in the form of one to ``size``, of random numbers.

    They are between 0 and 1 where all of the model's are (probabilities, zeros), else normal.
    """
    drawn: dict[int, Tensor] = {}  # one tensor under two names stays one

    def draw(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and id(leaf) not in drawn:
            drawn[id(leaf)] = fresh(leaf)
        return drawn[id(leaf)] if isinstance(leaf, Tensor) else leaf

    def fresh(leaf: Tensor) -> Tensor:
        if leaf.ndim == 0 or leaf.shape[0] != size:
            return leaf
        if not leaf.is_floating_point():
            return leaf[torch.arange(wanted, device=leaf.device) % size]
        generator = torch.Generator(leaf.device).manual_seed(wanted + len(drawn))
        shape, bounded = (wanted, *leaf.shape[1:]), bool(((leaf >= 0) & (leaf <= 1)).all())
        make = torch.rand if bounded else torch.randn
        return make(shape, generator=generator, device=leaf.device, dtype=torch.float32).to(leaf.dtype)

    foreign = isinstance(answer, Mapping) and not hasattr(answer, "to_tuple")
    return tree_map(draw, dict(answer) if foreign else answer)


def refuse_other_paths(
    criterion: Criterion, answer: Output, targets: Any, size: int, read: Callable[[Output], Tensor]
) -> None:
    """An error where the criterion takes more of the model's answer than the tensor that ``read`` finds in it."""
    leaves: dict[int, Tensor] = {}

    def leaf_of(found: Any) -> Any:
        if not isinstance(found, Tensor) or not found.is_floating_point():
            return found
        return leaves.setdefault(id(found), found.detach().clone().requires_grad_())

    with torch.enable_grad():
        try:
            moved = tree_map(leaf_of, scrambled(answer, size, size))
            value = criterion(moved, targets)
        except Exception:  # it takes no random numbers
            leaves.clear()
            moved = tree_map(leaf_of, answer)
            value = criterion(moved, targets)
        logits, inputs = read(moved), list(leaves.values())
        if not inputs or not value.requires_grad:
            return
        whole = torch.autograd.grad(value, inputs, retain_graph=True, materialize_grads=True)
        (slope,) = torch.autograd.grad(value, logits, retain_graph=True, allow_unused=True)
        slope = torch.zeros_like(logits) if slope is None else slope
        through = torch.autograd.grad(logits, inputs, slope, materialize_grads=True)
    for one, other in zip(whole, through, strict=True):
        if not torch.allclose(
            one, other, rtol=SLACK, atol=SLACK * float(one.abs().max()) if one.numel() else 0
        ):
            raise ValueError(
                "The criterion takes more of the model's answer than the output that counts (a tensor of shape "
                f"{list(one.shape)} in it changes the loss by another way): the residual H - F and the empirical "
                "Fisher matrix are those of a loss of the output alone. Say which tensor counts with output=, "
                "leave auxiliary terms out of the criterion, or take HessianOperator, which has all of them."
            )
