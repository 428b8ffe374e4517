"""What the curvature matrices of a model over data share: the weights, the batches, the exact sum."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from torch_iam import checks
from torch_iam.derivatives import Derivatives, Weights, Work, no_reentrant_checkpoints
from torch_iam.directions import Direction, total_norm
from torch_iam.distributed import Ranks
from torch_iam.formulas import differentiable_twice
from torch_iam.guards import mode, no_autocast
from torch_iam.inputs import Inputs, Output, logits_of, rows, tensors_in, to_device
from torch_iam.inputs import batch_size as size_of
from torch_iam.neighborhood import Neighborhood
from torch_iam.options import count_of
from torch_iam.perturb import Visit
from torch_iam.selection import Params
from torch_iam.spectrum.operator import Operator


@dataclass(frozen=True)
class Part:
    """A batch, or a piece of one.

    Attributes:
        visit: the model on its inputs.
        targets: None where there are none.
        size: number of examples.
        batch: of which batch of the data.
    """

    visit: Visit
    targets: Any
    size: int
    batch: int

    def evaluate(self, weights: Weights, work: Work) -> Any:
        """What ``work`` makes of the answer at these weights, while they are in place."""
        return self.visit.at(weights, work, eager=True)

    def holds_targets_that_are_not_finite(self) -> bool:
        """Whether NaN or infinity is among the targets."""
        floats = [t for t in tensors_in(self.targets) if t.is_floating_point()]
        return not all(bool(torch.isfinite(t).all()) for t in floats)

    def piece(self, start: int, stop: int) -> Part:
        """Some of its examples."""
        inputs = rows(self.visit.inputs, start, stop, self.size)
        targets = rows(self.targets, start, stop, self.size)
        return Part(self.visit.elsewhere(inputs), targets, stop - start, self.batch)


class CurvatureOperator(Operator):
    r"""A matrix :math:`\frac{1}{N} \sum_b A_b` over batches, on the weights that ``params`` chooses.

    The batches are read once and kept on the model's device; sums run over all of them, whatever their
    sizes. A product holds the graph of one batch at a time. The model is left as it was found: mode,
    weights, gradients, buffers, random stream. When its weights change, make a new operator.

    Args:
        model: the network.
        batches: inputs and targets (None where there are none) of every batch.
        params: which weights, see :class:`~torch_iam.Neighborhood`.
        output: which tensor of the model's answer counts, where it is not found by itself.
        training: take the model in training mode, with its random masks held still.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable[tuple[Inputs, Any]],
        *,
        params: Params = None,
        output: Callable[[Output], Tensor] | None = None,
        training: bool = False,
    ) -> None:
        refuse_inference_mode()
        self.model = Ranks.of(model).inner
        self.training = training
        self.output = logits_of if output is None else output
        self.derivatives = Derivatives(self.output)
        self.tried = False
        self.ball = Neighborhood(self.model, 1.0, params)
        refuse_batch_statistics(self.model, training)
        first = self.ball.weights[0]
        self.device, self.dtype = first.device, torch.promote_types(first.dtype, torch.float32)
        self.sizes = [weight.numel() for weight in self.ball.weights]
        self.shape = (sum(self.sizes), sum(self.sizes))
        self.parts: list[Part] = []
        for index, (inputs, targets) in enumerate(batches):
            here = to_device(inputs, self.device)
            try:
                checks.finite_inputs(here, wait=True)
            except ValueError as error:
                raise ValueError(f"Batch {index}: {error}") from None
            visit = (
                self.parts[0].visit.elsewhere(here)
                if self.parts
                else Visit(self.model, here, leave_trace=False)
            )
            there = None if targets is None else to_device(targets, self.device)
            self.parts.append(Part(visit, there, size_of(here), index))
        self.examples = sum(part.size for part in self.parts)

    def cut(self, limit: int) -> None:
        """Go on in pieces of at most ``limit`` examples."""
        step = count_of("batch_size", limit)
        self.parts = [
            part.piece(start, min(start + step, part.size))
            for part in self.parts
            for start in range(0, part.size, step)
        ]

    def by_name(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector ``[m]`` as one tensor for each weight, by name and in its shape."""
        pieces = torch.split(vector, self.sizes)
        return {
            name: piece.view(weight.shape).to(weight.dtype)
            for name, weight, piece in zip(self.ball.names, self.ball.weights, pieces, strict=True)
        }

    def vector_of(self, direction: Mapping[str, Tensor]) -> Tensor:
        """One tensor for each weight, by name, as one vector ``[m]``: what :meth:`by_name` takes apart."""
        fits = {
            name: name in direction and direction[name].shape == weight.shape
            for name, weight in zip(self.ball.names, self.ball.weights, strict=True)
        }
        if not all(fits.values()) or len(direction) != len(fits):
            first = next((name for name, fit in fits.items() if not fit), None)
            raise ValueError(
                f"A direction has a tensor in the shape of each of these {len(fits)} weights, by name; found "
                f"{len(direction)} tensors; first weight without one that fits: {first}. Take one of the same "
                "model and params=, such as Estimate.direction or Eigenvalue.vector."
            )
        return self._flat([direction[name].to(self.device) for name in fits])

    def quadratics(self, draw: Callable[[], Tensor]) -> Tensor:
        """See :meth:`Operator.quadratics`; ``[batches]``."""
        values, counts = [], []
        with self._held():
            for part in self.parts:
                value, count = self._quadratic(part, draw())
                values.append(value.to(self.dtype))
                counts.append(count)
        found = torch.stack(values)
        self._refuse_non_finite(torch.isfinite(found))
        return found / torch.stack(counts).sum().clamp(min=1).to(self.dtype)

    def _multiply(self, block: Tensor) -> Tensor:
        result = torch.zeros_like(block)
        counts, fine = [], []
        with self._held():
            for part in self.parts:
                for column in range(block.shape[1]):
                    found, count = self._product(part, self.by_name(block[:, column]))
                    fine.append(torch.isfinite(total_norm(found)))
                    result[:, column] += self._flat(found)
                counts.append(count)
        self._refuse_non_finite(torch.stack(fine).view(len(self.parts), -1).all(1))
        return result.div_(torch.stack(counts).sum().clamp(min=1).to(self.dtype))

    @abstractmethod
    def _product(self, part: Part, tangent: dict[str, Tensor]) -> tuple[Direction, Tensor]:
        """The product of the sum over one batch, and how many its terms are."""

    def _quadratic(self, part: Part, vector: Tensor) -> tuple[Tensor, Tensor]:
        """The quadratic form of the sum over one batch, and how many its terms are."""
        found, count = self._product(part, self.by_name(vector))
        with no_autocast(self.device):
            return self._flat(found) @ vector, count

    def _flat(self, direction: Direction) -> Tensor:
        return torch.cat([part.reshape(-1).to(self.dtype) for part in direction])

    def _held(self) -> ExitStack:
        refuse_inference_mode()
        held = ExitStack()
        held.enter_context(mode(self.model, self.training))
        held.enter_context(differentiable_twice(self.model))
        if not self.tried:  # once: it would show a model's own warnings anew each time
            held.enter_context(no_reentrant_checkpoints())
            held.push(self._passed)
        return held

    def _passed(self, kind: type[BaseException] | None, *_: Any) -> None:
        self.tried = kind is None

    def _refuse_non_finite(self, fine: Tensor) -> None:
        if not bool(fine.all()):
            parts = [part for part, ok in zip(self.parts, fine.tolist(), strict=True) if not ok]
            first, bad = parts[0], len({part.batch for part in parts})
            why = (
                "its targets hold NaN or infinity. Mend the data, or let the criterion leave such targets out."
                if first.holds_targets_that_are_not_finite()
                else "the model's weights or outputs, or the loss, are not finite there. Look at model(inputs) of "
                "that batch; a low precision that overflows needs float32."
            )
            total = len({part.batch for part in self.parts})
            raise FloatingPointError(
                f"The product is NaN or infinite in batch {first.batch} ({bad} of {total} batches): {why}"
            )


def refuse_inference_mode() -> None:
    """An error where no gradient can be taken."""
    checks.outside_inference_mode(
        "Products with a curvature matrix take gradients", "make the operator and multiply"
    )


def refuse_batch_statistics(model: nn.Module, training: bool) -> None:
    """An error where an example's output depends on the others in its batch."""
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (training or module.running_mean is None):
            why = "in training mode" if training else "without running statistics"
            raise ValueError(
                f"{name!r} ({type(module).__name__}) {why} normalises with the statistics of the batch: an "
                "example's output depends on the others beside it, and a curvature that is a mean over examples "
                "is not defined. Measure with training=False and tracked statistics, or with a GroupNorm."
            )
