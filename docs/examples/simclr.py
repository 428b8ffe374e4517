"""SimCLR in plain PyTorch, with the inconsistency as one more term of its loss: ``python simclr.py``."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from digits import batches, digits, distorted, network
from torch import Tensor, nn
from torch.nn import functional as F

import torch_iam as iam


def train(
    model: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor]],
    optimizer: torch.optim.Optimizer,
    beta: float = 1.0,
) -> None:
    penalty = iam.InconsistencyPenalty(model, rho=0.1, divergence=iam.SimilarityKL(temperature=0.5))
    model.train()
    for one, other in loader:
        views = torch.cat([one, other])
        z = model(views)
        unit = F.normalize(z, dim=1)
        itself = torch.eye(len(z), dtype=torch.bool)
        similarity = (unit @ unit.T / 0.5).masked_fill(itself, -torch.inf)
        partner = torch.arange(len(z)).roll(len(one))
        loss = F.cross_entropy(similarity, partner)
        loss = loss + beta * penalty(views, z)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(steps: int = 300, beta: float = 1.0) -> float:
    """Learn features without labels; gives the test error of a linear classifier on them in percent."""
    torch.manual_seed(0)
    images, labels, test_images, test_labels = digits()
    loader = ((distorted(images[rows]), distorted(images[rows])) for rows in batches(len(images), 128, steps))
    model = nn.Sequential(network(outputs=64), nn.ReLU(), nn.Linear(64, 32))
    train(model, loader, torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9), beta)
    encoder = model[:2].eval()
    with torch.no_grad():
        features, test_features = encoder(images), encoder(test_images)
    probe = nn.Linear(64, 10)
    optimizer = torch.optim.AdamW(probe.parameters(), lr=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        F.cross_entropy(probe(features), labels).backward()
        optimizer.step()
    return 100 * float((probe(test_features).argmax(1) != test_labels).float().mean())


if __name__ == "__main__":
    for beta in (0.0, 1.0):
        print(f"beta = {beta}: test error of the probe {main(beta=beta):.1f} %")
