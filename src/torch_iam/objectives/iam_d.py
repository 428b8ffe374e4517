"""IAM-D: the loss plus beta times the local inconsistency."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from torch_iam import checks
from torch_iam.accumulate import Known, accumulate
from torch_iam.ascent import Climb
from torch_iam.inputs import Output
from torch_iam.objectives.base import Batch, Step, step_of
from torch_iam.objectives.inconsistency import InconsistencyObjective, SearchOptions
from torch_iam.options import zero_or_more
from torch_iam.perturb import Visit


class IAMD(InconsistencyObjective):
    r"""The gradient of the loss plus the local inconsistency.

    .. math:: g = \nabla_\theta \big( L(\theta) + \beta\, S_\rho(\theta) \big), \qquad
        S_\rho(\theta) = \max_{\|\delta\| \le \rho} \mathbb{E}_x\, \mathrm{KL}(f(x; \theta) \| f(x; \theta + \delta))

    Both outputs are differentiated, delta is not (the envelope theorem).
    Cost: 6 + 3 K forward passes' worth with K ascent steps; 6 in one pass; 1 more in lean mode.

    Args:
        model: the network.
        rho: the radius; 0.1 on CIFAR-10.
        beta: the weight of S; 1 on CIFAR-10, 10 on CIFAR-100.
        detach_reference: leave the gradient through the clean output out, as the authors' code does.
        lean: keep one graph alive instead of two, for one forward pass more.
        steps: K, by default 1 from a random start and 0 from a carried one.
        start: ``"random"``, or ``"carry"``: begin at the ascent gradient of the step before. With the
            default ``steps`` this is one-pass IAM-D, which costs what SAM does.
        start_norm: expected norm of a random start; by default what the compute dtype resolves.
        probe: ``"divergence"``, or ``"fisher"`` for exact Fisher-vector products.
        sign: ``"either"``, ``"worst"`` or ``"ascent"``, see :class:`~torch_iam.maximizer.Maximizer`.
        batch_fraction: share of the batch that the ascent sees.
        divergence: any ``(clean, perturbed) -> Tensor``; :class:`~torch_iam.CategoricalKL` by default.
        params: which weights move, see :class:`~torch_iam.Neighborhood`.
        metric: ``"euclidean"`` or ``"adaptive"``.
        eta: of the adaptive metric.
        sub_batch: m, the size of independent sub-batches.
        output: the tensor of the model's answer that counts.
        seed: of the random starts; by default torch's initial seed.
        sync: on several devices, ``"local"`` for a delta on every rank, ``"global"`` for one of all.
        check: look on the first call whether the model gives the same output twice.

    >>> model = nn.Linear(2, 3)
    >>> x, y = torch.randn(4, 2), torch.tensor([0, 1, 2, 0])
    >>> step = IAMD(model, rho=0.1, beta=1.0).backward(x, y, nn.CrossEntropyLoss(), unlabeled=torch.randn(8, 2))
    >>> step.outputs.shape
    torch.Size([12, 3])
    """

    def __init__(
        self,
        model: nn.Module,
        rho: float = 0.1,
        beta: float = 1.0,
        *,
        detach_reference: bool = False,
        lean: bool = False,
        **options: Unpack[SearchOptions],
    ) -> None:
        super().__init__(model, rho, **options)
        if beta == 0 and self.maximizer.one_pass:
            raise ValueError(
                "One-pass IAM-D carries the gradient of beta S, which is 0 for beta=0: use Plain."
            )
        self.beta, self.detach_reference, self.lean = beta, detach_reference, lean

    @property
    def beta(self) -> float:
        """The weight of S, which a schedule may move."""
        return self._beta

    @beta.setter
    def beta(self, value: float) -> None:
        self._beta = zero_or_more("beta", value)

    def state_dict(self) -> dict[str, Any]:
        """Also beta, which a schedule may have moved."""
        return super().state_dict() | {"beta": self.beta}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        super().load_state_dict(state)
        self.beta = state["beta"]

    def _differentiate(self, batch: Batch, scale: Tensor | float) -> Step:
        checks.without_history((batch.inputs, batch.unlabeled))
        visit, clean = self._clean(batch, graph=not self.lean)
        with torch.set_grad_enabled(not self.lean):
            logits = self.output(clean)
            visit.fork.passed()  # what is taken from the output may be computed too
            loss = batch.loss(clean)
        with nullcontext() if self.lean else visit.fork.beside():
            climb = self.maximizer.find(visit, logits, self._loss_gradient(visit, batch))
            side = self._perturbed_side(visit, climb, logits, scale)

        def descend(loss: Tensor, logits: Tensor) -> None:
            visit.fork.take_over()
            accumulate(loss, scale, [(logits, side.at_logits)], side.at_weights, visit.fork.join)

        if self.lean:  # the clean side runs again, with a graph, now that the other graph is gone
            visit.at({}, lambda output: descend(batch.loss(output), self.output(output)))
        else:
            descend(loss, logits)
        loss = loss.detach()
        return step_of(loss, loss + self.beta * side.inconsistency, clean, side.inconsistency, climb.ok)

    def _perturbed_side(self, visit: Visit, climb: Climb, logits: Tensor, scale: Tensor | float) -> _Side:
        """S, and ``scale`` times the gradient of beta S in its three places; the pass is over afterwards.

        In one pass the gradient at theta + delta is also the next step's ascent.
        """
        there = self.ball.moved(climb.delta, leaf=True)
        climb.delta.clear()
        weights: list[Tensor] = list(self.ball.weights)
        for name, weight in self.model.named_parameters():
            if weight.requires_grad and name not in there:
                there[name] = weight.detach().requires_grad_()
                weights.append(weight)
        reference = logits.detach().requires_grad_(not self.detach_reference)

        def descend(output: Output) -> Tensor:
            logits = self.output(output)
            perturbed = logits.detach().requires_grad_()
            value = self._inconsistency(visit, reference, perturbed)
            accumulate(value, self.beta * scale)
            visit.fork.settle()
            if perturbed.grad is not None:
                accumulate(logits, perturbed.grad)
            return value.detach()

        inconsistency = visit.at(there, descend)
        gradients = [moved.grad for moved in there.values()]
        del there  # its storage should be free before a direction to carry is made
        if self.maximizer.one_pass:
            ascent = [
                torch.zeros_like(weight) if found is None else found
                for weight, found in zip(self.ball.weights, gradients, strict=False)
            ]
            if self.combine is not None:
                self.combine(ascent)
            self.maximizer.remember(*self.ball.uphill(ascent))
        return _Side(inconsistency, reference.grad, list(zip(weights, gradients, strict=True)))


@dataclass(frozen=True)
class _Side:
    """The perturbed side of a step: S, and its gradient at the clean logits and in each weight."""

    inconsistency: Tensor
    at_logits: Tensor | None
    at_weights: Known
