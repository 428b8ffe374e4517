"""Which positions an expectation runs over: all of them, or those that a mask chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

from torch_iam.inputs import Inputs

Mask: TypeAlias = "str | Callable[[Any], Tensor] | None"
ATTENTION, OF_DECODER = "attention_mask", "decoder_attention_mask"


def chosen_by(mask: Mask, inputs: Inputs | None) -> Tensor | None:
    """Yes or no for every position, in the shape that the mask has; None where there is no mask.

    >>> chosen_by("attention_mask", {"ids": torch.zeros(1, 3), "attention_mask": torch.tensor([[1, 1, 0]])})
    tensor([[ True,  True, False]])
    """
    if mask is None or inputs is None:
        return None
    if callable(mask):
        return mask(inputs).bool()
    if not isinstance(inputs, Mapping):
        return None
    if mask == ATTENTION and any(name.startswith("decoder_") for name in inputs):
        mask = OF_DECODER  # the output is the decoder's, and the other mask the encoder's
    found = inputs.get(mask)
    if not isinstance(found, Tensor):
        return None
    if not found.is_floating_point():
        return found.bool()
    # A mask that is added to scores has 0 for yes, and something negative for no.
    return torch.where((found < 0).any(), found == 0, found > 0)


def fits(mask: Mask, chosen: Tensor, values: Tensor) -> bool:
    """Whether the mask is one of these positions; a key may name a mask over something else, a function may not."""
    if chosen.shape != values.shape and callable(mask):
        raise ValueError(
            f"The mask has shape {tuple(chosen.shape)}, the divergence {tuple(values.shape)}: "
            "a mask says yes or no for every position."
        )
    return chosen.shape == values.shape


def silenced(mask: Mask, chosen: Tensor, clean: Tensor, perturbed: Tensor) -> Tensor:
    """The perturbed output, and the clean one at positions that do not count: nothing has moved there.

    Shapes: chosen ``[B, T]``, outputs ``[B, T, ...]``. A key may name a mask over something else, which changes
    nothing; over outputs ``[B, L]`` it always does, for their L labels are no positions.
    """
    over_labels = clean.ndim == chosen.ndim and not callable(mask)
    if over_labels or chosen.shape != clean.shape[: chosen.ndim]:
        if callable(mask):
            raise ValueError(
                f"The mask has shape {tuple(chosen.shape)}, the output {tuple(clean.shape)}: a mask says yes or no "
                "for every example, or for every position of it."
            )
        return perturbed
    wide = chosen.reshape(*chosen.shape, *[1] * (clean.ndim - chosen.ndim))
    return torch.where(wide, perturbed, clean.to(perturbed.dtype))
