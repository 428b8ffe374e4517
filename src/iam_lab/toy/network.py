"""The toy network and its training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from iam_lab.models.mlp import MLP, Activation

SIZES = (2, 70, 70, 3)


@dataclass(frozen=True)
class Training:
    """How the toy network is trained: gradient descent on all points at once.

    The paper names neither the optimizer nor the activation.

    Attributes:
        steps: of gradient descent.
        learning_rate: constant.
        momentum: of the gradients.
        activation: between the layers.
        sizes: of the layers; the paper's network has 5,393 weights.
        seed: of the weights.
    """

    steps: int = 150
    learning_rate: float = 0.05
    momentum: float = 0.9
    activation: Activation = "tanh"
    sizes: tuple[int, ...] = SIZES
    seed: int = 0

    def network(self) -> MLP:
        """The untrained network, in double precision."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return MLP(self.sizes, self.activation).double()

    def run(
        self,
        points: Tensor,
        labels: Tensor,
        each_step: Callable[[int, MLP], None] | None = None,
    ) -> MLP:
        """The trained network; ``each_step(k, network)`` sees it after k steps, from k = 0 on."""
        network = self.network()
        optimizer = torch.optim.SGD(network.parameters(), self.learning_rate, self.momentum)
        for step in range(self.steps + 1):
            if each_step is not None:
                each_step(step, network)
            if step < self.steps:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(network(points), labels)
                torch.autograd.backward(loss)
                optimizer.step()
        return network
