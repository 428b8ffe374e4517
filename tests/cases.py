"""The shared table of cases: small models of every kind, in float64, each with a batch.

A case that a test does not fit is left out by its property, never by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class DropPath(nn.Module):
    """Stochastic depth: whole residual branches vanish, example by example."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        keep = torch.rand(len(x), *[1] * (x.ndim - 1), dtype=x.dtype) >= self.rate
        return x * keep / (1 - self.rate)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.branch = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.path, self.dropout = DropPath(0.3), nn.Dropout(0.2)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        h = h + self.path(self.branch(F.relu(self.norm(h))))
        return self.head(self.dropout(h.mean((2, 3))))


class Transformer(nn.Module):
    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(tokens)).mean(1))


class TiedLanguageModel(nn.Module):
    """Logits ``[B, T, V]`` through the transposed embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.mix = nn.Linear(5, 5)
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mix(self.embed(tokens))))


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 6).requires_grad_(False)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(x)))


class Stateful(nn.Module):
    """Buffers that a forward pass reads and writes: a counter and a running mean that shifts the output."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("center", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        out = self.inner(x - self.center) * (1 + 0.1 * self.calls)
        if self.training:
            with torch.no_grad():
                self.calls += 1
                self.center.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return out


class TwinBiases(nn.Module):
    """Weights whose gradients autograd returns as one tensor, as parts of it, or expanded."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3, bias=False)
        self.one, self.other = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.ones(3))
        self.front, self.back = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(2))
        self.summed = nn.Parameter(torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        biases = torch.cat([self.front, self.back]) + (self.one + self.other)
        return self.linear(x) * self.summed.sum() + biases


@dataclass(frozen=True)
class Case:
    """A model, how to make its batch, and what is special about it."""

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    tokens: int = 0
    classes: int = 3
    per_token: bool = False
    batch_dependent: bool = False  # BatchNorm or buffers that couple examples or calls
    random: bool = False

    def model(self, seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        return self.build().double().train()

    def inputs(self, size: int = 8, seed: int = 1) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        if self.tokens:
            return torch.randint(0, self.tokens, (size, *self.shape), generator=generator)
        return torch.randn(size, *self.shape, generator=generator, dtype=torch.float64)

    def targets(self, size: int = 8, seed: int = 2) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        shape = (size, *self.shape) if self.per_token else (size,)
        return torch.randint(0, self.classes, shape, generator=generator)

    def criterion(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), label_smoothing=0.1)

    def __str__(self) -> str:
        return self.name


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def _convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3))


def _compiled() -> nn.Module:
    model = torch.compile(_mlp(), backend="aot_eager")
    assert isinstance(model, nn.Module)
    return model


CASES = (
    Case("mlp", _mlp, (4,)),
    Case("convolution", _convolution, (1, 6, 6), batch_dependent=True),
    Case("residual", Residual, (1, 5, 5), batch_dependent=True, random=True),
    Case("transformer", Transformer, (6,), tokens=11, random=True),
    Case("tied", TiedLanguageModel, (5,), tokens=7, classes=7, per_token=True),
    Case("frozen", Frozen, (4,)),
    Case("stateful", Stateful, (4,), batch_dependent=True),
    Case("twin-biases", TwinBiases, (4,)),
    Case("compiled", _compiled, (4,)),
)


def gradient(model: nn.Module) -> Tensor:
    """The gradient of all trainable weights as one vector."""
    return torch.cat(
        [
            (torch.zeros_like(w) if w.grad is None else w.grad).flatten()
            for w in model.parameters()
            if w.requires_grad
        ]
    )


def relative(found: Tensor, expected: Tensor) -> float:
    """The norm of the difference over the norm of what was expected."""
    return float((found - expected).norm() / expected.norm())
