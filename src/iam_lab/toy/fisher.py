r"""The whole spectrum of the toy's Fisher matrix, from a factor of it.

The Fisher matrix of a network with C classes over N points is F = A' A with A of N C rows,

.. math:: A_{(x, c)} = \sqrt{p_c(x) / N}\; \nabla_\theta \log p_c(x),

one for every point and class. Where these are fewer than the weights, the eigenvalues of F that are not
zero are those of the small matrix A A', and its eigenvectors give those of F.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap


@dataclass(frozen=True)
class FisherSpectrum:
    """Eigenvalues and eigenvectors of F.

    Attributes:
        factor: A, ``[N C, m]``.
        eigenvalues: the N C largest of F, the largest first; all others are 0.
        left: eigenvectors of A A', in columns of the same order, ``[N C, N C]``.
    """

    factor: Tensor = field(repr=False)
    eigenvalues: Tensor
    left: Tensor = field(repr=False)

    @classmethod
    def of(cls, network: nn.Module, points: Tensor) -> FisherSpectrum:
        """The spectrum at the network's weights, which are ordered as its ``parameters()``."""
        factor = fisher_factor(network, points)
        values, left = torch.linalg.eigh(factor @ factor.T)
        return cls(factor, values.flip(0).clamp(min=0), left.flip(1))

    def eigenvectors(self, count: int) -> Tensor:
        """Unit eigenvectors of the largest eigenvalues, ``[m, count]``."""
        return self.factor.T @ self.left[:, :count] / self.eigenvalues[:count].sqrt()

    def in_eigenbasis(self, vectors: Tensor) -> Tensor:
        """Coordinates of ``F vectors`` along all eigenvectors, ``[N C, n]`` for ``[m, n]``."""
        return self.eigenvalues.sqrt()[:, None] * (self.left.T @ (self.factor @ vectors))

    @property
    def ratio(self) -> float:
        """lambda_2 / lambda_1: a step of the power iteration shrinks the second component by it."""
        return float(self.eigenvalues[1] / self.eigenvalues[0])


def fisher_factor(network: nn.Module, points: Tensor) -> Tensor:
    """A, ``[N C, m]``."""
    weights = {name: weight.detach() for name, weight in network.named_parameters()}

    def logits(here: dict[str, Tensor], point: Tensor) -> Tensor:
        found: Tensor = functional_call(network, here, (point[None],))[0]
        return found

    jacobians = vmap(jacrev(logits), in_dims=(None, 0))(weights, points)
    jacobian = torch.cat([part.flatten(2) for part in jacobians.values()], dim=2)  # [N, C, m]
    with torch.no_grad():
        p = network(points).softmax(dim=1)[:, :, None]
        scores = jacobian - (p * jacobian).sum(dim=1, keepdim=True)
        factor: Tensor = (p.sqrt() * scores / math.sqrt(len(points))).flatten(0, 1)
        return factor


def flat(delta: Mapping[str, Tensor]) -> Tensor:
    """A direction by the weights' names as one vector, ``[m]``."""
    return torch.cat([step.detach().flatten() for step in delta.values()])


def cosine(first: Tensor, second: Tensor) -> float:
    """|cos| of two vectors, however short they are (``torch.cosine_similarity`` lengthens norms below 1e-8)."""
    return abs(float((first / first.norm()) @ (second / second.norm())))
