"""What must not change on the way: BatchNorm's statistics, other buffers, the random stream, the mode.

A training step passes the same batch through the model several times. Only the first, clean pass may
leave a trace. A :class:`Moment` remembers what that pass started from, and every later pass starts from
there too: it draws the same dropout masks and writes into buffers of its own. (Restoring a buffer in
place instead would break the backward of the clean graph, which has saved it.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import mha


class RandomStream:
    """The state of PyTorch's generators on the CPU and on the devices of a model."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self.devices = [device for device in devices if device.type == "cuda"]
        self.cpu = torch.get_rng_state()
        self.cuda = [torch.cuda.get_rng_state(device) for device in self.devices]

    def restore(self) -> None:
        """Make every generator go on from here."""
        torch.set_rng_state(self.cpu)
        for device, state in zip(self.devices, self.cuda, strict=True):
            torch.cuda.set_rng_state(state, device)


class Moment:
    """What a forward pass of ``model`` would start from now, beside weights and inputs."""

    def __init__(self, model: nn.Module) -> None:
        self.devices = devices_of(model)
        self.buffers = copies(dict(model.named_buffers()))
        # A stream under capture cannot be read; `capture` has made sure that the model draws nothing.
        self.stream = None if _capturing() else RandomStream(self.devices)

    @contextmanager
    def again(self) -> Iterator[dict[str, Tensor]]:
        """Relive the moment: the random stream starts over, and buffers to write into are yielded.

        Afterwards the stream goes on from where it was before.
        """
        scratch = copies(self.buffers)
        if self.stream is None:
            yield scratch
            return
        now = RandomStream(self.devices)
        self.stream.restore()
        try:
            yield scratch
        finally:
            now.restore()


class Holdings:
    """Which tensors every module of a model holds, to put others in their place and all of them back.

    A tensor that is held in several places (tied weights, a module that is used twice) is replaced in all of them.
    """

    def __init__(self, model: nn.Module) -> None:
        self.kept: list[tuple[Any, dict[str, Tensor | None]]] = []
        self._named: dict[str, Tensor] = {}
        self._places: dict[int, list[tuple[Any, str]]] = {}
        for prefix, part in model.named_modules():
            for owner in (part._parameters, part._buffers):
                if owner:
                    self.kept.append((owner, dict(owner)))
                for key, tensor in owner.items():
                    if tensor is not None:
                        self._named[f"{prefix}.{key}" if prefix else key] = tensor
                        self._places.setdefault(id(tensor), []).append((owner, key))

    def replace(self, tensors: Mapping[str, Tensor]) -> None:
        """Put these tensors, by name, in the place of the model's own."""
        for name, tensor in tensors.items():
            for owner, key in self._places[id(self._named[name])]:
                owner[key] = tensor

    def restore(self) -> None:
        """Every tensor in its place, in the order it had; may be called again, and after an interrupt too."""
        for owner, before in self.kept:
            same = list(owner) == list(before) and all(owner[name] is before[name] for name in before)
            if not same:
                owner.clear()
                owner.update(before)


@contextmanager
def plain_attention() -> Iterator[None]:
    """PyTorch's own encoder layers by one path, with and without gradients.

    The fast path of evaluation skips padded positions, and no slope of it exists: its output is another.
    """
    before = mha.get_fastpath_enabled()
    try:
        mha.set_fastpath_enabled(False)
        yield
    finally:
        mha.set_fastpath_enabled(before)


class MeanBuffers:
    """One update of the buffers for a step of several independent parts.

    Each part starts from the same buffers; in the end they hold the mean of what the parts left there,
    which for BatchNorm is one update with the mean of the parts' statistics. Counters count one.
    """

    def __init__(self, model: nn.Module) -> None:
        self.live = dict(model.named_buffers())
        self.before = copies(self.live)
        self.parts: list[dict[str, Tensor]] = []

    @contextmanager
    def part(self) -> Iterator[None]:
        """Run one part from the common start."""
        if self.parts:
            self._write(self.before)
        yield
        self.parts.append(copies(self.live))

    def finish(self) -> None:
        """Write the mean of all parts."""
        if len(self.parts) > 1:
            self._write({name: self._mean(name) for name in self.live})

    def _mean(self, name: str) -> Tensor:
        values = [part[name] for part in self.parts]
        return torch.stack(values).mean(0) if values[0].is_floating_point() else values[0]

    def _write(self, values: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, buffer in self.live.items():
                buffer.copy_(values[name])


@torch.no_grad()
def copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same values in new storage, in one kernel for each dtype: a network has a hundred small buffers."""
    made = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
    for kind in dict.fromkeys((tensor.dtype, tensor.device) for tensor in tensors.values()):
        names = [name for name, tensor in tensors.items() if (tensor.dtype, tensor.device) == kind]
        torch._foreach_copy_([made[name] for name in names], [tensors[name] for name in names])
    return made


@contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """The whole model in one mode; afterwards every module is in its own again."""
    before = [(module, module.training) for module in model.modules()]
    try:
        model.train(training)
        yield
    finally:
        for module, was_training in before:  # parents first
            if module.training != was_training:
                module.train(was_training)  # which some modules answer: LoRA layers merge in eval mode


def uncached_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """The caller's autocast, if any, without its cache of cast weights.

    The cache would hand the weights cast in a pass without gradients to the next pass with them, whose
    weights would then silently get none.
    """
    if not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.get_autocast_dtype(device.type), cache_enabled=False)


def no_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Autocast off: for a backward pass, which follows the dtypes of its forward."""
    if not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def devices_of(model: nn.Module) -> list[torch.device]:
    """The devices the model's weights and buffers lie on, each once, the first weight's first."""
    parts = list(model.modules())
    found = [weight.device for part in parts for weight in part._parameters.values() if weight is not None]
    found += [buffer.device for part in parts for buffer in part._buffers.values() if buffer is not None]
    return list(dict.fromkeys(found)) or [torch.device("cpu")]


def _capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
