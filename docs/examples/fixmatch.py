"""FixMatch in plain PyTorch, with the inconsistency as one more term of its loss: ``python fixmatch.py``."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from digits import batches, digits, distorted, network, shifted
from torch import Tensor, nn
from torch.nn import functional as F

import torch_iam as iam


def train(
    model: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor, Tensor, Tensor]],
    optimizer: torch.optim.Optimizer,
    beta: float = 1.0,
) -> None:
    penalty = iam.InconsistencyPenalty(model, rho=0.05)
    model.train()
    for x, y, weak, strong in loader:
        strong_logits = model(strong)
        both = torch.cat([x, weak])
        logits = model(both)  # one batch for BatchNorm, whose pass the penalty makes again
        certainty, guess = logits[len(x) :].detach().softmax(1).max(1)
        strong_losses = F.cross_entropy(strong_logits, guess, reduction="none")
        loss = F.cross_entropy(logits[: len(x)], y) + (strong_losses * (certainty >= 0.95)).mean()
        loss = loss + beta * penalty(both, logits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(steps: int = 300, beta: float = 1.0) -> float:
    """Learn digits from 40 labels; gives the test error in percent."""
    torch.manual_seed(0)
    images, labels, test_images, test_labels = digits()
    known = torch.cat([(labels == digit).nonzero()[:4, 0] for digit in range(10)])
    loader = (
        (shifted(images[known]), labels[known], shifted(images[rows]), distorted(images[rows]))
        for rows in batches(len(images), 160, steps)
    )
    model = network(outputs=10)
    train(model, loader, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True), beta)
    model.eval()
    with torch.no_grad():
        wrong = model(test_images).argmax(1) != test_labels
    return 100 * float(wrong.float().mean())


if __name__ == "__main__":
    for beta in (0.0, 1.0):
        print(f"beta = {beta}: test error {main(beta=beta):.1f} %")
