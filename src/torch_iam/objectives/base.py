"""What all objectives share: one call in place of ``loss.backward()``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torch_iam import checks
from torch_iam.distributed import Ranks
from torch_iam.guards import MeanBuffers
from torch_iam.inputs import (
    Inputs,
    Output,
    batch_size,
    concatenate,
    in_order_of,
    logits_of,
    mapped,
    rows,
)
from torch_iam.options import count_of
from torch_iam.perturb import Visit
from torch_iam.selection import admit

Criterion = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class Step:
    """What one ``backward`` saw. All tensors are detached and stay on the device.

    Attributes:
        loss: the criterion at the weights themselves (not at theta + delta), a scalar.
        objective: what was minimised: the loss, the loss plus beta S, or the loss at theta + delta.
        inconsistency: S on this batch at the delta found; None for objectives that have none.
        outputs: what the model returned in the clean pass, unlabelled part included.
        finite: whether the objective is a finite number; where it is not, skip the optimizer's step.
        perturbed: whether delta was a step at all: a zero or non-finite ascent gradient gives delta = 0.
    """

    loss: Tensor
    objective: Tensor
    inconsistency: Tensor | None
    outputs: Output
    finite: Tensor
    perturbed: Tensor


@dataclass(frozen=True)
class Batch:
    """The examples of one step, labelled ones first."""

    inputs: Inputs
    targets: Any
    criterion: Criterion
    unlabeled: Inputs | None = None

    @property
    def labelled(self) -> int:
        """How many examples the loss sees."""
        return batch_size(self.inputs)

    def all_inputs(self) -> Inputs:
        """Labelled and unlabelled examples, for one forward pass."""
        return self.inputs if self.unlabeled is None else concatenate(self.inputs, self.unlabeled)

    def loss(self, output: Output) -> Tensor:
        """The criterion on the labelled part of an output."""
        if self.unlabeled is not None:
            total = self.labelled + batch_size(self.unlabeled)
            checks.has_rows(output, total)
            output = rows(output, 0, self.labelled, total)
        value = self.criterion(output, self.targets)
        checks.scalar_loss(value)
        checks.differentiable_loss(value, output)
        return value.reshape(())

    def split(self, size: int | None) -> list[Batch]:
        """Independent sub-batches of ``size`` labelled examples, with their share of the unlabelled ones."""
        if size is None or size == self.labelled:
            return [self]
        checks.divides(size, self.labelled, "the batch")
        checks.divisible_targets(self.targets, self.labelled)
        parts = self.labelled // size
        share = 0
        if self.unlabeled is not None:
            checks.divides(parts, batch_size(self.unlabeled), "the unlabelled inputs into as many parts")
            share = batch_size(self.unlabeled) // parts
        return [
            Batch(
                rows(self.inputs, i * size, (i + 1) * size, self.labelled),
                rows(self.targets, i * size, (i + 1) * size, self.labelled),
                self.criterion,
                None
                if self.unlabeled is None
                else rows(self.unlabeled, i * share, (i + 1) * share, share * parts),
            )
            for i in range(parts)
        ]


class Objective(ABC):
    """A gradient to descend along: adds into ``.grad`` what ``loss.backward()`` would, and more.

    Args:
        model: the network, as it is called in training; DistributedDataParallel and ``torch.compile``
            wrappers included.
        sub_batch: m, the size of independent sub-batches, each with a delta of its own, whose gradients
            are averaged (m-sharpness). The criterion must be a mean over its examples.
        output: the tensor of the model's answer that counts; found by itself for tensors, ``logits``
            entries and tuples.
        check: look at each call whether targets match and inputs are finite (on a GPU, which would wait, at the
            first alone), and on the first call whether the model gives the same output twice, at the cost of
            one forward pass.
    """

    uses_unlabeled = False

    def __init__(
        self,
        model: nn.Module,
        *,
        sub_batch: int | None = None,
        output: Callable[[Output], Tensor] | None = None,
        check: bool = True,
    ) -> None:
        admit(model)
        self.ranks = Ranks.of(model)
        self.model: nn.Module = self.ranks.inner
        self.sub_batch = None if sub_batch is None else count_of("sub_batch", sub_batch)
        self.output = logits_of if output is None else output
        first = next(model.parameters(), None)
        if first is None:
            raise ValueError("No weight may move: the model has no parameters.")
        self.failed_ascents = torch.zeros((), dtype=torch.long, device=first.device)
        self.check, self._unchecked = check, check

    def backward(
        self,
        inputs: Inputs,
        targets: Any,
        criterion: Criterion,
        unlabeled: Inputs | None = None,
        *,
        loss_scale: float | Tensor = 1.0,
        scaler: torch.amp.GradScaler | None = None,
    ) -> Step:
        """Add the gradient of this objective on one batch into ``.grad``.

        Args:
            inputs: what the model takes: a tensor ``[B, ...]``, a tuple of arguments or a dict.
            targets: what the criterion compares with, ``[B, ...]`` or anything else it takes.
            criterion: ``(model output, targets) -> scalar``, a mean over the examples.
            unlabeled: more inputs of the same form, which only the inconsistency sees.
            loss_scale: a factor on the gradient, for accumulation (1 / number of batches).
            scaler: the GradScaler that will unscale the gradient; inner gradients are never scaled.

        Returns:
            The step; see :class:`Step`.
        """
        checks.gradients_are_on()
        batch = self._admitted(inputs, targets, criterion, unlabeled)
        parts = batch.split(self.sub_batch)
        if len(parts) > 1:
            checks.without_history((inputs, unlabeled))
        scale = self._scale(loss_scale, scaler) / len(parts)
        buffers = MeanBuffers(self.model) if len(parts) > 1 else None
        steps = []
        with self.ranks.averaged():
            for part in parts:
                with buffers.part() if buffers else nullcontext():
                    steps.append(self._differentiate(part, scale))
        if buffers:
            buffers.finish()
        step = _merged(steps, parts[0].labelled)
        self.failed_ascents = self.failed_ascents.to(step.perturbed.device)  # where the model is by now
        self.failed_ascents += ~step.perturbed  # in place: a captured graph refers to this memory
        return step

    @abstractmethod
    def _differentiate(self, batch: Batch, scale: Tensor | float) -> Step:
        """Add ``scale`` times the gradient on one independent batch into ``.grad``."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on; load it to resume bit for bit."""
        return {"objective": type(self).__name__, "failed_ascents": self.failed_ascents.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        if state.get("objective") != type(self).__name__:
            raise ValueError(
                f"The state is that of {state.get('objective', 'something else')!r}, and this objective is "
                f"{type(self).__name__!r}: a training goes on with the objective that it began with."
            )
        self.failed_ascents.copy_(state["failed_ascents"])

    def _clean(self, batch: Batch, *, graph: bool = True) -> tuple[Visit, Output]:
        """The clean pass of a batch, and the visit for the passes to come."""
        visit = Visit(self.model, batch.all_inputs())
        with torch.set_grad_enabled(graph):
            output = visit.clean()
        if self._unchecked:
            logits = self.output(output)
            if graph:
                checks.differentiable(logits)
            checks.still(visit, logits, self.output)
            self._unchecked = False
        return visit, output

    def _admitted(
        self, inputs: Inputs, targets: Any, criterion: Criterion, unlabeled: Inputs | None
    ) -> Batch:
        if unlabeled is not None and not self.uses_unlabeled:
            raise ValueError(
                f"{type(self).__name__} follows the labelled loss alone and has no use for unlabeled=; "
                "leave it out, or train with IAMD or IAMS."
            )
        if unlabeled is not None:
            unlabeled = in_order_of(inputs, unlabeled)
            if batch_size(unlabeled) == 0:
                raise ValueError("unlabeled= holds no examples; leave it out where there are none.")
        if self.check:
            checks.targets(inputs, targets)
            checks.finite_inputs(inputs, wait=self._unchecked)
            if unlabeled is not None:
                checks.finite_inputs(unlabeled, wait=self._unchecked)
        return Batch(inputs, targets, criterion, unlabeled)

    def _scale(self, loss_scale: float | Tensor, scaler: torch.amp.GradScaler | None) -> Tensor | float:
        if scaler is None:
            return loss_scale
        one = torch.ones((), device=self.failed_ascents.device)
        return scaler.scale(one) * loss_scale


def step_of(
    loss: Tensor,
    objective: Tensor,
    outputs: Output,
    inconsistency: Tensor | None = None,
    perturbed: Tensor | None = None,
) -> Step:
    """A step with everything detached."""
    return Step(
        loss=loss.detach(),
        objective=objective.detach(),
        inconsistency=None if inconsistency is None else inconsistency.detach(),
        outputs=mapped(Tensor.detach, outputs),
        finite=objective.detach().abs() < torch.inf,
        perturbed=torch.ones_like(loss, dtype=torch.bool) if perturbed is None else perturbed.all(),
    )


def _merged(steps: Sequence[Step], labelled: int) -> Step:
    """All sub-batches as one step; each of them begins with so many labelled examples."""
    if len(steps) == 1:
        return steps[0]

    def mean(name: str) -> Tensor:
        return torch.stack([getattr(step, name) for step in steps]).mean(0)

    def join(*parts: Tensor) -> Tensor:
        if parts[0].ndim == 0:
            return parts[0]
        return torch.cat([*(part[:labelled] for part in parts), *(part[labelled:] for part in parts)])

    def both(name: str) -> Tensor:
        return torch.stack([getattr(step, name) for step in steps]).all()

    return Step(
        loss=mean("loss"),
        objective=mean("objective"),
        inconsistency=None if steps[0].inconsistency is None else mean("inconsistency"),
        outputs=mapped(join, *(step.outputs for step in steps)),
        finite=both("finite"),
        perturbed=both("perturbed"),
    )
