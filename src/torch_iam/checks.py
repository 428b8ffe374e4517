"""What must be true before a gradient is written: errors that say what was wrong and what to write instead."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torch_iam.inputs import Inputs, Output, batch_size, tensors_in
from torch_iam.perturb import NO_GRADIENT, Visit, unwrapped


def scalar_loss(value: Any) -> None:
    """A criterion returns one number."""
    if not isinstance(value, Tensor):
        raise TypeError(f"The criterion must return a scalar tensor, found {type(value).__name__}.")
    if value.numel() != 1:
        raise ValueError(
            f"The criterion must return a scalar, found shape {tuple(value.shape)}: use reduction='mean'."
        )


def differentiable_loss(value: Tensor, output: Output) -> None:
    """Where gradients are taken, a loss that a gradient can pass through."""
    if torch.is_grad_enabled() and not value.requires_grad:
        if not any(tensor.requires_grad for tensor in tensors_in(output)):
            raise ValueError(NO_GRADIENT)
        raise ValueError(
            "The criterion's loss has no gradient, though the model's output has: the criterion detaches it, counts "
            "(an error rate, an argmax), or returns a constant. Return a differentiable loss of the output."
        )


def outside_inference_mode(what: str, where: str) -> None:
    """Gradients can be taken, whether or not they are switched on."""
    if torch.is_inference_mode_enabled():
        raise RuntimeError(
            f"{what}, which torch.inference_mode() rules out: {where} outside, with inputs made outside "
            "(torch.no_grad() is no hindrance)."
        )


def gradients_are_on() -> None:
    """Nobody has switched gradients off around the step."""
    if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        raise RuntimeError(
            "backward() takes gradients, and here they are switched off (torch.no_grad(), torch.inference_mode()). "
            "Call it outside; to measure without training, write iam.local_inconsistency(model, inputs, rho=...)."
        )


def differentiable(logits: Tensor) -> None:
    """An output that a gradient can pass through."""
    if not logits.requires_grad:
        raise ValueError(NO_GRADIENT)


def targets(inputs: Inputs, wanted: Any) -> None:
    """As many targets as inputs, or as many for each; anything but a tensor is the criterion's own affair."""
    size = batch_size(inputs)
    if size == 0:
        raise ValueError("The batch holds no examples.")
    if isinstance(wanted, Tensor) and wanted.ndim > 0 and (len(wanted) == 0 or len(wanted) % size):
        raise ValueError(
            f"targets hold {len(wanted)} examples, the inputs {size}. Inputs without a label go into unlabeled=; "
            "where examples are not the first dimension, or two of them share a label, hand over check=False."
        )


def finite_inputs(inputs: Inputs, *, wait: bool, of: str = "") -> None:
    """No NaN and no infinity, a mask of 0 and -inf aside. On a GPU only when ``wait``: the answer stalls it."""
    for tensor in tensors_in(inputs):
        if not tensor.is_floating_point() or (tensor.is_cuda and not wait):
            continue
        if tensor.layout != torch.strided:  # few operations take a sparse tensor, and none of those below
            continue
        fine = torch.isfinite(tensor)
        if not bool(fine.all()) and not bool(((tensor == 0) | (tensor == -torch.inf)).all()):
            raise ValueError(
                f"{of}The inputs hold {int((~fine).sum())} values that are NaN or infinite, of {tensor.numel()}. "
                "Mend the data; a model that means to see such values is trained with check=False."
            )


def without_history(inputs: Inputs) -> None:
    """Inputs that a backward may come back to twice."""
    if any(tensor.grad_fn is not None for tensor in tensors_in(inputs)):
        raise ValueError(
            "The inputs were computed with gradients, and a step of several backward passes (IAM-D, sub_batch=) "
            "would walk back into what computed them more than once. Hand over x.detach(), or a model that holds "
            "that part too."
        )


def has_rows(output: Output, total: int) -> None:
    """An answer of which the labelled part can be told."""
    if not any(tensor.ndim > 0 and len(tensor) == total for tensor in tensors_in(output)):
        raise ValueError(
            f"No tensor in the model's answer has a row for each of the {total} examples, so that the loss would not "
            "see which of them are labelled. Return logits [examples, ...]."
        )


def divides(part: int, whole: int, what: str) -> None:
    """Sub-batches of equal size."""
    if whole % part:
        raise ValueError(
            f"sub_batch must divide {what}: {whole} examples by {part} leaves {whole % part}. "
            "Choose a divisor, or drop the last, smaller batch of the loader (drop_last=True)."
        )


def divisible_targets(wanted: Any, size: int) -> None:
    """Targets that sub-batches can be cut from: tensors with an entry for each example."""
    leaves = tensors_in(wanted)
    if wanted is not None and not leaves:
        raise TypeError(
            f"sub_batch= cuts the targets along with the inputs, and can cut tensors alone; found "
            f"{type(wanted).__name__}. Make a tensor of them, or leave sub_batch out."
        )
    for tensor in leaves:
        if tensor.ndim > 0 and len(tensor) != size:
            raise ValueError(
                f"sub_batch= cuts the targets along with the inputs: a tensor of them has {len(tensor)} entries for "
                f"{size} examples. Give each tensor one entry for an example, as in [B, T], or leave sub_batch out."
            )


def still(visit: Visit, clean: Tensor, output: Callable[[Output], Tensor]) -> None:
    """The perturbed pass at delta = 0 gives the clean logits: nothing random is left in the model."""
    named = {name: weight.detach().clone() for name, weight in visit.model.named_parameters()}
    before = clean.detach()
    with torch.no_grad():
        again = output(visit.at(named))
    if before.shape != again.shape:
        raise ValueError(
            f"The model's output changes its shape: {tuple(before.shape)}, {tuple(again.shape)}."
        )
    if not before.is_floating_point():
        raise TypeError(f"The model's output must be floating point logits, found {before.dtype}.")
    finite = bool(torch.isfinite(before).all())
    difference = float((before.double() - again.double()).abs().max()) if before.numel() else 0.0
    tolerance = math.sqrt(torch.finfo(before.dtype).eps) * max(float(before.double().abs().max()), 1e-30)
    if finite and difference > tolerance:
        guilty = _first_that_differs(visit)
        where = f"The first module whose output changes is {guilty}. " if guilty else ""
        raise ValueError(
            f"The same batch at the same weights gives outputs that differ by up to {difference:.3g}: delta = 0 "
            f"would already count as inconsistency. {where}Torch's random streams and the buffers are held "
            "still between passes; randomness from Python's random, numpy or a private generator, or a state "
            "outside the buffers, is not. Draw with torch, or register the state as a buffer. (A penalty must "
            "get the logits of the model's last forward pass, on the very inputs of that pass.)"
        )


def _first_that_differs(visit: Visit) -> str | None:
    """Name and type of the first module, in the order of evaluation, that answers twice differently."""
    module = unwrapped(visit.model)
    names = {id(part): name or "the model itself" for name, part in module.named_modules()}
    seen: list[tuple[int, list[Tensor]]] = []
    kinds = {id(part): type(part).__name__ for part in module.modules()}

    def note(part: nn.Module, _: Any, answer: Any) -> None:
        seen.append((id(part), [tensor.detach().clone() for tensor in tensors_in(answer)]))

    hooks = [part.register_forward_hook(note) for part in module.modules()]
    try:
        with torch.no_grad():
            visit.at({}, eager=True)
            first, seen = seen, []
            visit.at({}, eager=True)
    finally:
        for hook in hooks:
            hook.remove()
    for (key, one), (_, two) in zip(first, seen, strict=False):
        if any(a.shape != b.shape or not torch.equal(a, b) for a, b in zip(one, two, strict=False)):
            return f"{names[key]!r} ({kinds[key]})"
    return None
