"""A whole training step as one CUDA graph: no launch, no Python between its kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_flatten, tree_map

from torch_iam.inputs import Inputs
from torch_iam.objectives.base import Criterion, Objective, Step
from torch_iam.streams import second_stream

Result = TypeVar("Result")

WARM_UP = 2


class CapturedStep(Generic[Result]):
    """A step that is recorded once and replayed on new data.

    The first call is an ordinary step: the optimizer makes its buffers there, a carried direction is found,
    and a compiled model is compiled. The second records. So every state has its place in memory before the
    graph refers to it.

    :func:`capture` makes one of an objective. Made by hand it takes any ``work``, such as a step with
    backward passes beside the objective's:

    Args:
        work: a batch (a tensor, or any nesting of tuples, lists and dicts) to a result, leaving its gradient in
            ``.grad``. In a graph it may not look at a number on the device.
        objective: whose state ``work`` moves on.
        optimizer: steps inside the graph, after ``work``; see :func:`capture`.
        overlap: see :func:`capture`.

    >>> import torch_iam as iam
    >>> model, x = torch.nn.Linear(2, 3), torch.randn(4, 2)
    >>> objective = iam.Plain(model)
    >>> step = CapturedStep(lambda x: objective.backward(x, x, lambda out, x: out.square().mean()).loss, objective)
    >>> step(x).shape
    torch.Size([])
    """

    def __init__(
        self,
        work: Callable[[Any], Result],
        objective: Objective,
        optimizer: Optimizer | None = None,
        *,
        overlap: bool = False,
    ) -> None:
        self.work, self.objective, self.optimizer, self.overlap = work, objective, optimizer, overlap
        self.weights = [weight for weight in objective.model.parameters() if weight.requires_grad]
        self.device = self.weights[0].device
        if optimizer is not None and self.device.type == "cuda":
            _check_capturable(optimizer)
        kind = self.device.type
        self.autocast = (torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        self.graph: torch.cuda.CUDAGraph | None = None
        self.first = True

    def __call__(self, batch: Any) -> Result:
        """One step on a batch of the shapes captured; the next one overwrites the tensors it returns."""
        if self.device.type != "cuda":
            return self._eager(batch)
        if self.first:
            self.first = False
            return self._first(batch)
        if self.graph is None:
            self.graph = self._record(batch)
        self._fill(batch)
        self.graph.replay()
        for weight, gradient in zip(self.weights, self.gradients, strict=True):
            weight.grad = gradient
        return self.result

    def _eager(self, batch: Any) -> Result:
        result = self._differentiated(batch)
        if self.optimizer is not None:
            self.optimizer.step()
        return result

    def _differentiated(self, batch: Any) -> Result:
        for weight in self.weights:
            weight.grad = None
        dtype, enabled = self.autocast
        with torch.autocast(self.device.type, dtype=dtype, enabled=enabled):
            return self.work(batch)

    def _first(self, batch: Any) -> Result:
        """An ordinary step, unless the model draws random numbers."""
        stream = torch.cuda.default_generators[self.device.index or 0]
        before = stream.get_offset()
        result = self._differentiated(batch)
        if stream.get_offset() != before:
            # The passes of a captured step could not be made to draw the same dropout masks.
            raise ValueError(
                "The model draws random numbers in its forward pass (Dropout, stochastic depth): inside a graph "
                "the passes of a step would not draw the same. Run it eagerly, or set the rates to 0."
            )
        if self.optimizer is not None:
            self.optimizer.step()
        return result

    def _record(self, batch: Any) -> torch.cuda.CUDAGraph:
        self.static = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch)
        restore = self._remember()
        side, second = (torch.cuda.Stream(self.device) for _ in range(2))  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.device))
        beside = second if self.overlap else None
        with torch.cuda.stream(side), second_stream(beside):
            for _ in range(WARM_UP):
                self._eager(self.static)
            restore()
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        maximizer = getattr(self.objective, "maximizer", None)
        if maximizer is not None:
            graph.register_generator_state(maximizer.generator)
        with torch.cuda.graph(graph), second_stream(beside):
            self.result = self._eager(self.static)
        self.gradients = [weight.grad for weight in self.weights]
        return graph

    def _fill(self, batch: Any) -> None:
        held, spec = tree_flatten(self.static)
        given, other = tree_flatten(batch)
        if spec != other:
            raise ValueError(f"This step was captured for {spec}, found {other}: a graph has one form.")
        for static, new in zip(held, given, strict=True):
            if not isinstance(static, Tensor):
                continue
            if static.shape != new.shape:
                raise ValueError(
                    f"This step was captured for shape {tuple(static.shape)}, found {tuple(new.shape)}: a "
                    "graph has fixed shapes. Drop the last, smaller batch (drop_last=True)."
                )
            static.copy_(new, non_blocking=True)

    def _remember(self) -> Callable[[], None]:
        """A function that puts back, in place, everything that a step changes."""
        tensors = [*self.objective.model.parameters(), *self.objective.model.buffers()]
        if self.optimizer is not None:
            tensors += [v for state in self.optimizer.state.values() for v in tree_flatten(state)[0]]
        kept = [(tensor, tensor.detach().clone()) for tensor in tensors if isinstance(tensor, Tensor)]
        state = self.objective.state_dict()

        @torch.no_grad()
        def restore() -> None:
            for tensor, value in kept:
                tensor.copy_(value)
            self.objective.load_state_dict(state)

        return restore


def capture(
    objective: Objective,
    criterion: Criterion,
    *,
    optimizer: Optimizer | None = None,
    overlap: bool = False,
) -> Callable[..., Step]:
    """Turn the steps of ``objective`` into a CUDA graph; returns the function that replays it.

    The returned ``step(inputs, targets, unlabeled=None)`` clears ``.grad``, writes the gradient of the batch
    into it and, if an optimizer was given, steps. Its first call runs eagerly, its second records, and every
    batch must be of the shapes recorded. Everything that is a plain number is frozen into the graph: rho, beta,
    a float learning rate. The caller's autocast at this point holds in every step. ``torch.compile`` goes
    with it: hand the compiled model to the objective. On a CPU there are no graphs, and each step runs eagerly.

    Args:
        objective: what to descend along.
        criterion: as for ``backward``.
        optimizer: steps inside the graph; it must be able to (``fused=True`` or ``capturable=True``, with a
            learning rate that is a tensor on the device, which schedulers then update in place). Without
            it, call ``optimizer.step()`` after each step as usual, and never ``zero_grad()``.
        overlap: let passes of a step that need nothing of each other run at the same time, on two streams: of IAM-D
            and IAM-S the clean pass and the first perturbed one, of IAM-D both backward passes. The order of every
            read and write is tested; how much time it saves has not been measured.

    >>> import torch_iam as iam
    >>> model = torch.nn.Linear(2, 3)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> step = iam.capture(iam.SAM(model), torch.nn.CrossEntropyLoss(), optimizer=optimizer)
    >>> bool(step(torch.randn(4, 2), torch.zeros(4).long()).finite)
    True
    """
    captured: CapturedStep[Step] = CapturedStep(
        lambda batch: objective.backward(batch[0], batch[1], criterion, batch[2]),
        objective,
        optimizer,
        overlap=overlap,
    )

    def step(inputs: Inputs, targets: Any, unlabeled: Inputs | None = None) -> Step:
        return captured((inputs, targets, unlabeled))

    return step


def _check_capturable(optimizer: Optimizer) -> None:
    name = type(optimizer).__name__
    for group in optimizer.param_groups:
        if not isinstance(group["lr"], Tensor) or not group["lr"].is_cuda:
            raise ValueError(
                f"The learning rate of {name} is {group['lr']!r}: a graph would freeze it. Write "
                "lr=torch.tensor(0.1, device='cuda'); schedulers update it in place."
            )
        if not (group.get("fused") or group.get("capturable")):
            raise ValueError(
                f"{name} cannot step inside a graph as it is: write fused=True or capturable=True."
            )
