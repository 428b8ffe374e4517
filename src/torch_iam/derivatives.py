"""The two derivatives that curvature needs, each with the fewest passes: J v beside a graph, and H v."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from torch_iam.directions import Direction
from torch_iam.guards import no_autocast
from torch_iam.inputs import Output

T = TypeVar("T")
Weights = dict[str, Tensor]
Work = Callable[[Output], Any]
Evaluate = Callable[[Weights, Work], Any]
"""What a piece of work makes of the answer at some weights, done while they are in place."""

BREAKS = ("ZeroTensor", "view size is not compatible")
"""What PyTorch says where forward mode breaks: over the backward of mse_loss, in group_norm on channels_last."""


class Derivatives:
    """J v and H v of one model, in forward mode where the model has one, else by two reverses.

    Some operations have no forward mode. Activation checkpointing has one, but not beside a graph: it runs
    parts of the model again in the backward, and then without tangents. What breaks once is not tried again.

    Args:
        read: the tensor in the model's answer that counts.
    """

    def __init__(self, read: Callable[[Output], Tensor]) -> None:
        self.read = read
        self.broken: set[str] = set()

    def beside_graph(
        self,
        evaluate: Evaluate,
        weights: Mapping[str, Tensor],
        tangent: Mapping[str, Tensor],
        then: Callable[[Output, Tensor, list[Tensor]], T],
    ) -> T:
        """What ``then`` makes of an answer with its graph, of J v, and of the weights to differentiate in.

        A single pass carries tangents beside values: 3 forward passes' worth where a pass of its own for each
        would cost 4.
        """

        def forward() -> T:
            leaves = leaves_of(weights)
            with torch.enable_grad(), ExitStack() as level:
                level.enter_context(forward_ad.dual_level())

                def work(answer: Output) -> T:
                    pushed = _tangent(self.read(answer))
                    level.close()  # a backward that carried the tangents on would be one of H v
                    return then(answer, pushed, list(leaves.values()))

                found: T = evaluate(_duals(leaves, tangent), work)
                return found

        def apart() -> T:
            _, pushed = self.pushed(evaluate, weights, tangent)
            leaves = leaves_of(weights)
            with torch.enable_grad():
                found: T = evaluate(leaves, lambda answer: then(answer, pushed, list(leaves.values())))
                return found

        return self._either("beside a graph", forward, apart)

    def pushed(
        self, evaluate: Evaluate, weights: Mapping[str, Tensor], tangent: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The tensor in an answer and its J v, without a graph: forward mode keeps no activations."""

        def forward() -> tuple[Tensor, Tensor]:
            with torch.no_grad(), forward_ad.dual_level():
                found: Tensor = evaluate(_duals(weights, tangent), self.read)
                return forward_ad.unpack_dual(found).primal, _tangent(found)  # type: ignore[no-untyped-call]

        def two_reverses() -> tuple[Tensor, Tensor]:
            leaves = leaves_of(weights)

            def work(answer: Output) -> tuple[Tensor, Tensor]:
                found = self.read(answer)
                probe = torch.zeros_like(found, requires_grad=True)
                with no_autocast(found.device):
                    pulled = torch.autograd.grad(
                        found, list(leaves.values()), probe, create_graph=True, materialize_grads=True
                    )
                    along = [(part * tangent[name]).sum() for name, part in zip(leaves, pulled, strict=True)]
                    (pushed,) = torch.autograd.grad(torch.stack(along).sum(), probe)
                return found.detach(), pushed

            with torch.enable_grad():
                both: tuple[Tensor, Tensor] = evaluate(leaves, work)
                return both

        return self._either("alone", forward, two_reverses)

    def of_gradient(
        self,
        evaluate: Evaluate,
        gradient: Callable[[Output, list[Tensor], bool], Sequence[Tensor]],
        weights: Mapping[str, Tensor],
        tangent: Mapping[str, Tensor],
    ) -> Direction:
        """The directional derivative of a gradient: forward mode over reverse, else two reverses.

        Args:
            evaluate: the model.
            gradient: of ``(answer, leaves, create_graph)``.
            weights: where.
            tangent: along what.
        """

        def forward() -> Direction:
            leaves = leaves_of(weights)

            def work(answer: Output) -> Direction:
                return [_tangent(part) for part in gradient(answer, list(leaves.values()), False)]

            with torch.enable_grad(), forward_ad.dual_level():
                found: Direction = evaluate(_duals(leaves, tangent), work)
                return found

        def two_reverses() -> Direction:
            leaves = leaves_of(weights)

            def work(answer: Output) -> Direction:
                inputs = list(leaves.values())
                slopes = zip(leaves, gradient(answer, inputs, True), strict=True)
                curved = [(part, tangent[name]) for name, part in slopes if part.requires_grad]
                if not curved:
                    return [torch.zeros_like(leaf) for leaf in inputs]
                parts, along = zip(*curved, strict=True)
                with no_autocast(parts[0].device):
                    return list(torch.autograd.grad(parts, inputs, along, materialize_grads=True))

            with torch.enable_grad():
                found: Direction = evaluate(leaves, work)
                return found

        return self._either("of a gradient", forward, two_reverses)

    def _either(self, what: str, forward: Callable[[], T], instead: Callable[[], T]) -> T:
        if what not in self.broken:
            try:
                return forward()
            except RuntimeError as error:
                if not _forward_mode_broke(error):
                    raise
            self.broken.add(what)
        return instead()


@contextmanager
def no_reentrant_checkpoints() -> Iterator[None]:
    """An error where checkpointing of the older kind would lose a part of the model: PyTorch warns and goes on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="None of the inputs have requires_grad")
        try:
            yield
        except UserWarning as lost:
            if "None of the inputs have requires_grad" not in str(lost):
                raise
            raise ValueError(
                "A part of the model runs under torch.utils.checkpoint with use_reentrant=True, which loses the "
                "derivatives of its weights. Write use_reentrant=False, or switch checkpointing off."
            ) from None


def leaves_of(weights: Mapping[str, Tensor]) -> Weights:
    """The same numbers as tensors to take a gradient at."""
    return {name: weight.detach().requires_grad_() for name, weight in weights.items()}


def _duals(weights: Mapping[str, Tensor], tangent: Mapping[str, Tensor]) -> Weights:
    return {name: forward_ad.make_dual(weight, tangent[name]) for name, weight in weights.items()}  # type: ignore[no-untyped-call]


def _forward_mode_broke(error: RuntimeError) -> bool:
    """Whether it lacks an operation, or fails in one that itself is fine."""
    if isinstance(error, NotImplementedError | CheckpointError):
        return True
    return any(text in str(error) for text in BREAKS)


def _tangent(tensor: Tensor) -> Tensor:
    found = forward_ad.unpack_dual(tensor).tangent  # type: ignore[no-untyped-call]
    return torch.zeros_like(tensor).detach() if found is None else found.detach()
