"""Milliseconds and peak memory of a training step: every objective and option, as a ratio to the plain one.

A step is everything between two batches: gradient, SGD with momentum and weight decay. On a GPU it runs in
bfloat16 autocast and channels_last. Every call sees the same batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

import torch_iam as iam
from iam_lab.bench.peers import sam_by_hand, sam_of_pytorch_optimizer
from iam_lab.bench.timing import Work, interleaved, peak_bytes, ratios
from iam_lab.models import build_model

LR = 1e-3


@dataclass(frozen=True)
class Row:
    """A way to make a step.

    Attributes:
        forwards: what it costs in forward passes; the plain step costs 3.
        make: a model and the size of its batch to the objective.
    """

    forwards: float
    make: Callable[[nn.Module, int], iam.Objective]


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "Plain": Row(3, lambda m, _: iam.Plain(m)),
        "SAM": Row(6, lambda m, _: iam.SAM(m, rho=0.05)),
        "ASAM": Row(6, lambda m, _: iam.ASAM(m, rho=0.5)),
        "IAM-S": Row(7, lambda m, _: iam.IAMS(m, rho=0.1)),
        "IAM-D": Row(9, lambda m, _: iam.IAMD(m, rho=0.1)),
        "IAM-D one-sided": Row(9, lambda m, _: iam.IAMD(m, rho=0.1, detach_reference=True)),
        "IAM-D one-pass": Row(6, lambda m, _: iam.IAMD(m, rho=0.1, start="carry")),
        "IAM-D lean": Row(10, lambda m, _: iam.IAMD(m, rho=0.1, lean=True)),
        "IAM-D half batch": Row(8, lambda m, _: iam.IAMD(m, rho=0.1, batch_fraction=0.5)),
        "IAM-D K=3": Row(15, lambda m, _: iam.IAMD(m, rho=0.1, steps=3)),
        "IAM-D adaptive": Row(9, lambda m, _: iam.IAMD(m, rho=0.5, metric="adaptive")),
        "IAM-D m=B/4": Row(9, lambda m, batch: iam.IAMD(m, rho=0.1, sub_batch=batch // 4)),
    }
)
PEERS = ("SAM by hand", "SAM of pytorch_optimizer")
MODES = ("eager", "compiled", "graph", "overlap")
"""As written; with the model through ``torch.compile``; with that, and the whole step in one CUDA graph; so too,
on two streams."""
GRAPHS = MODES[2:]


class Bench:
    """One batch, and the ways to make a step on it.

    Args:
        model: name of the network.
        device: ``cpu`` or ``cuda``.
        batch: images in it.
    """

    def __init__(self, model: str, device: str, batch: int) -> None:
        self.name, self.device, self.batch, self.amp = model, device, batch, device != "cpu"
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(batch, 3, 32, 32, generator=generator)
        self.x = x.to(device, memory_format=torch.channels_last)
        self.y = torch.randint(0, 10, (batch,), generator=generator).to(device)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    def work(self, name: str, mode: str) -> Work:
        """A step of a row or of a peer."""
        model = self.model(mode)
        if name == "SAM by hand":
            return sam_by_hand(model, self.optimizer(model), self.loss)
        if name == "SAM of pytorch_optimizer":
            return sam_of_pytorch_optimizer(model, self.loss, LR)
        objective = ROWS[name].make(model, self.batch)
        return self.ours(objective, self.optimizer(model), mode)

    def model(self, mode: str) -> nn.Module:
        """A fresh model; compiled in every mode but eager."""
        torch.manual_seed(0)
        model = build_model(self.name, classes=10).to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if mode == "eager":
            return model.train()  # type: ignore[no-any-return]
        compiled = torch.compile(model.train(), dynamic=False)  # half batches get kernels of their own
        assert isinstance(compiled, nn.Module)
        return compiled

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """SGD as the paper has it; fused and with a learning rate on the device, so that a graph may hold it."""
        rate: Any = torch.tensor(LR, device=self.device) if self.amp else LR
        return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4, fused=self.amp)

    def autocast(self) -> AbstractContextManager[Any]:
        """bfloat16 on a GPU, nothing on a CPU."""
        return torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.amp)

    def loss(self, model: nn.Module) -> Tensor:
        """The usual forward pass."""
        with self.autocast():
            value: Tensor = self.criterion(model(self.x), self.y)
        return value

    def ours(self, objective: iam.Objective, optimizer: torch.optim.Optimizer, mode: str) -> Work:
        """A step of an objective, launched kernel by kernel or all at once."""
        if mode in GRAPHS:
            with self.autocast():
                overlap = mode == "overlap"
                replay = iam.capture(objective, self.criterion, optimizer=optimizer, overlap=overlap)
            return lambda: replay(self.x, self.y)

        def step() -> None:
            optimizer.zero_grad()
            with self.autocast():
                objective.backward(self.x, self.y, self.criterion)
            optimizer.step()

        return step


def names(mode: str, only: tuple[str, ...] = ()) -> list[str]:
    """The rows of a mode: some and Plain, or all with the peers that are there.

    >>> names("graph", ("SAM",))
    ['Plain', 'SAM']
    """
    if only:
        return [name for name in ROWS if name == "Plain" or name in only]
    peers = [] if mode in GRAPHS else [PEERS[0], *(PEERS[1:] if find_spec("pytorch_optimizer") else ())]
    return [*ROWS, *peers]


def step_cost(
    bench: Bench, mode: str, *, calls: int, rounds: int, only: tuple[str, ...] = ()
) -> Iterator[dict[str, Any]]:
    """Every row of a mode: time, passes and, unless a graph owns its memory, the peak of it."""
    with _every_variant_compiled():
        works = {name: bench.work(name, mode) for name in names(mode, only)}
        times = ratios(interleaved(works, bench.device, calls, rounds), "Plain")
    peaks = {} if mode in GRAPHS else {name: peak_bytes(work, bench.device) for name, work in works.items()}
    for name, row in times.items():
        forwards = ROWS[name].forwards if name in ROWS else ROWS["SAM"].forwards
        found: dict[str, Any] = {**row, "mode": mode, "name": name, "passes": forwards / 3}
        if peaks:
            found |= {"peak_mib": peaks[name] / 2**20, "peak_ratio": peaks[name] / peaks["Plain"]}
        yield found


@contextmanager
def _every_variant_compiled() -> Iterator[None]:
    """Past torch's default of 8 compilations of one model's code it would run eagerly, in silence."""
    config = torch._dynamo.config
    before = config.recompile_limit
    config.recompile_limit = 256
    try:
        yield
    finally:
        config.recompile_limit = before
