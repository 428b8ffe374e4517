"""The multilayer perceptron of the toy problem."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

from torch import Tensor, nn

from iam_lab.models.encoder import Encoder

Activation: TypeAlias = Literal["relu", "tanh", "gelu", "silu"]
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU}


class MLP(Encoder):
    """Linear maps with an activation between them; images are flattened first.

    The paper's toy has 5,393 weights and inputs in the plane: sizes (2, 70, 70, 3).

    Args:
        sizes: width of every layer, from the inputs to the outputs.
        activation: what lies between two linear maps.

    Shapes: ``[B, ...]`` with ``sizes[0]`` values an example to ``[B, sizes[-1]]``.

    >>> sum(p.numel() for p in MLP(sizes=(2, 70, 70, 3)).parameters())
    5393
    """

    def __init__(self, sizes: Sequence[int] = (2, 70, 70, 3), activation: Activation = "relu") -> None:
        super().__init__()
        if len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(
                f"sizes names at least the inputs and the outputs, all positive; found {tuple(sizes)}. "
                "The toy of the paper is (2, 70, 70, 3)."
            )
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation is one of {', '.join(ACTIVATIONS)}; found {activation!r}.")
        *widths, outputs = sizes
        layers: list[nn.Module] = []
        for width_in, width_out in pairwise(widths):
            layers += [nn.Linear(width_in, width_out), ACTIVATIONS[activation]()]
        self.body = nn.Sequential(nn.Flatten(), *layers)
        self.feature_size = widths[-1]
        self.head = nn.Linear(self.feature_size, outputs)

    def features(self, x: Tensor) -> Tensor:
        """The last hidden layer, ``[B, sizes[-2]]``."""
        hidden: Tensor = self.body(x)
        return hidden
