"""The two numbers of the README: a small network on three Gaussians, before and after IAM-D."""

import torch
from torch import nn

import torch_iam as iam

torch.manual_seed(0)
centers = torch.tensor([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
y = torch.arange(3).repeat(200)
x = centers[y] + torch.randn(600, 2)
inputs = 2 * torch.randn(1000, 2)

model = nn.Sequential(nn.Linear(2, 70), nn.Tanh(), nn.Linear(70, 70), nn.Tanh(), nn.Linear(70, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()

for objective in (iam.Plain(model), iam.IAMD(model, rho=0.5, beta=1.0)):
    for _ in range(200):
        optimizer.zero_grad()
        step = objective.backward(x, y, criterion)
        optimizer.step()
    print(iam.local_inconsistency(model, inputs, rho=0.5, restarts=10))
