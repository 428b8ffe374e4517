"""What the networks here share: features, and a head on top of them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Encoder(nn.Module, ABC):
    """A network of two parts, ``head(features(x))``.

    ``head`` is a module like any other: replace it, and the rest stays the encoder of a contrastive model
    or of a linear probe.

    Attributes:
        feature_size: F, what ``head`` takes.
        head: maps features ``[B, F]`` to the output.

    >>> import torch
    >>> from iam_lab.models import MLP
    >>> model = MLP(sizes=(2, 70, 70, 3))
    >>> model.features(torch.zeros(5, 2)).shape, model.feature_size
    (torch.Size([5, 70]), 70)
    >>> model.head = nn.Identity()
    >>> model(torch.zeros(5, 2)).shape
    torch.Size([5, 70])
    """

    feature_size: int
    head: nn.Module

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Features ``[B, F]`` of inputs ``x``."""

    def forward(self, x: Tensor) -> Tensor:
        """``head(features(x))``."""
        output: Tensor = self.head(self.features(x))
        return output


def initialize_for_relu(model: nn.Module) -> None:
    """He initialisation by fan-in of every convolution and linear map, biases zero, BatchNorm the identity.

    What the paper's released wide residual network starts from (PyTorch's own default is narrower).
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
