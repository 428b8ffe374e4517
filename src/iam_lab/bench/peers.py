"""SAM as others write it: what a step of this package is compared with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from iam_lab.bench.timing import Work
from iam_lab.lazy import require

Loss = Callable[[nn.Module], Tensor]
RHO = 0.05


def sam_by_hand(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Loss) -> Work:
    """The usual wrapper's way: perturb the weights in place, differentiate again, put them back."""

    def step() -> None:
        optimizer.zero_grad()
        loss(model).backward()  # type: ignore[no-untyped-call]
        moved = [(weight, weight.grad) for weight in model.parameters() if weight.grad is not None]
        with torch.no_grad():
            norm = torch.stack([gradient.norm() for _, gradient in moved]).norm()
            before = [weight.detach().clone() for weight, _ in moved]
            for weight, gradient in moved:
                weight.add_(gradient * (RHO / (norm + 1e-12)))
        optimizer.zero_grad()
        loss(model).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for (weight, _), value in zip(moved, before, strict=True):
                weight.copy_(value)
        optimizer.step()

    return step


def sam_of_pytorch_optimizer(model: nn.Module, loss: Loss, lr: float) -> Work:
    """The best-kept SAM of the registry, as its documentation uses it."""
    library = require("pytorch_optimizer", extra="test", purpose="The peer")
    optimizer = library.SAM(
        model.parameters(), torch.optim.SGD, rho=RHO, lr=lr, momentum=0.9, weight_decay=5e-4
    )

    def step() -> None:
        loss(model).backward()  # type: ignore[no-untyped-call]
        optimizer.first_step(zero_grad=True)
        loss(model).backward()  # type: ignore[no-untyped-call]
        optimizer.second_step(zero_grad=True)

    return step
