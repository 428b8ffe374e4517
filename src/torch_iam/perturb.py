"""The model at theta + delta: evaluate there, always come back.

The weights themselves are never written: the moved weights are other tensors, put in the model's hands
for the length of one call. So a live graph stays valid, storages stay where they are, and an exception
or an interrupt finds every weight with its bits. What differentiates such a pass does so within the call
too: activation checkpointing runs parts of the model again in the backward, and must find the same weights.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from torch_iam.directions import aligned
from torch_iam.guards import Holdings, Moment, no_autocast, plain_attention, uncached_autocast
from torch_iam.inputs import Inputs, Output, call
from torch_iam.selection import COMPILED
from torch_iam.streams import Fork

NO_GRADIENT = (
    "The model's output has no gradient: its forward runs under torch.no_grad(), detaches, or uses frozen weights "
    "only. The objective needs the graph of the forward pass."
)
"""Said before any weight moves, by whichever pass comes first."""


class Visit:
    """One batch in one model: the clean pass, then passes at other weights that leave no trace.

    Args:
        model: the network.
        inputs: the batch.
        leave_trace: whether the clean pass is an ordinary pass of the model, which updates BatchNorm's
            statistics and moves the random stream on. When measuring it must not.
    """

    def __init__(self, model: nn.Module, inputs: Inputs, *, leave_trace: bool = True) -> None:
        self.model, self.inputs = model, inputs
        self.leave_trace = leave_trace
        self.moment = Moment(model)
        self.device = self.moment.devices[0]
        self.fork = Fork()

    def clean(self) -> Output:
        """The model's output at theta: an ordinary forward pass."""
        if not self.leave_trace:
            return self.at({})
        with self._uniform():
            output = call(self.model, self.inputs)
        self.fork.passed()
        return output

    def at(
        self,
        weights: Mapping[str, Tensor],
        then: Callable[[Output], Any] | None = None,
        *,
        eager: bool = False,
    ) -> Any:
        """The output with these weights in place of the model's, everything else as in the clean pass.

        Args:
            weights: by name; what is missing is the model's own.
            then: what is done with the output while the weights are in place, a backward pass above all;
                its result is returned instead of the output.
            eager: run the module as written where the model is compiled (forward-mode derivatives need it).
        """

        def work(model: nn.Module) -> Any:
            output = call(model, self.inputs)
            self.fork.meet()
            return output if then is None else then(output)

        return self.within(weights, work, eager=eager)

    def within(
        self, weights: Mapping[str, Tensor], work: Callable[[nn.Module], Any], *, eager: bool = False
    ) -> Any:
        """What ``work`` makes of the model while these weights and buffers of its own are in place."""
        model, holdings = unwrapped(self.model) if eager else self.model, Holdings(self.model)
        try:  # and no context manager: an interrupt on the way into one finds nobody who would leave it
            with self.moment.again() as buffers, self._uniform(), _quiet(self.model):
                holdings.replace({**weights, **buffers})
                return work(model)
        finally:
            try:
                holdings.restore()
            finally:  # once more, if an interrupt came in the middle of it
                holdings.restore()

    @contextmanager
    def _uniform(self) -> Iterator[None]:
        """All passes compute by the same means."""
        with uncached_autocast(self.device), nullcontext() if self.compiled else plain_attention():
            yield

    @property
    def compiled(self) -> bool:
        """Whether the model is behind ``torch.compile``."""
        return unwrapped(self.model) is not self.model

    def elsewhere(self, inputs: Inputs) -> Visit:
        """A visit of other inputs that starts from the same moment and leaves no trace."""
        other = copy.copy(self)
        other.inputs, other.leave_trace = inputs, False
        return other


@contextmanager
def _quiet(model: nn.Module) -> Iterator[None]:
    """Keep the compiler's warning away that weights with a history hold no ``.grad``: they need none."""
    if unwrapped(model) is model:
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
        yield


def unwrapped(model: nn.Module) -> nn.Module:
    """The module as written, out of ``torch.compile``."""
    inner = getattr(model, COMPILED[:-1], model)
    return inner if isinstance(inner, nn.Module) else model


def gradients(
    value: Tensor,
    tensors: Sequence[Tensor],
    cotangent: Tensor | None = None,
) -> list[Tensor]:
    """The gradient of ``value`` in each tensor, zero where there is none, each in storage and layout of its own.

    Autograd may return one tensor twice (for two biases that are added), a part of another (for one that is
    added to a concatenation) or an expanded one (for a weight that is summed): writing into such a gradient
    would write into others.
    """
    if not value.requires_grad:
        raise ValueError(NO_GRADIENT)
    with no_autocast(value.device):
        found = torch.autograd.grad(value, list(tensors), cotangent, materialize_grads=True)
    return [aligned(part, tensor) for part, tensor in zip(owned(found), tensors, strict=True)]


def owned(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The tensors, with a copy in place of each that shares its storage with an earlier one or itself."""
    seen: set[int] = set()
    result = []
    for tensor in tensors:
        folded = any(
            stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
        )
        storage = tensor.untyped_storage().data_ptr()
        result.append(tensor.clone() if folded or storage in seen else tensor)
        seen.add(storage)
    return result
