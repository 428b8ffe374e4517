"""S_rho as a term of a loss that a pipeline already has."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.utils.weak import WeakIdKeyDictionary

from torch_iam import checks
from torch_iam.divergence import Divergence, total
from torch_iam.inputs import Inputs, Output, logits_of
from torch_iam.maximizer import Maximizer
from torch_iam.neighborhood import Neighborhood
from torch_iam.perturb import Visit
from torch_iam.selection import Params

RUN_AGAIN = (
    "A penalty does not go with activation checkpointing (nor other hooks on saved tensors): its backward comes "
    "after the weights at theta + delta are gone, and would run parts of the model again at theta. Train with "
    "IAMD, whose gradient is the same and which takes checkpointing, or switch checkpointing off."
)


class InconsistencyPenalty:
    r"""The local inconsistency on a batch, differentiable in the weights and in the clean logits.

    .. math:: S_\rho(\theta) = \mathbb{E}_x\, \mathrm{KL}\big(f(x; \theta)\,\|\,f(x; \theta + \delta)\big),
        \qquad \delta \approx \arg\max_{\|\delta\| \le \rho}

    It reuses a forward pass that the pipeline has made anyway: hooks on the model note for each forward pass
    with gradients the random stream and the buffers that it began with, so that the perturbed passes draw the
    same dropout masks. Call it with the inputs of such a pass and the very logits that it gave; logits that
    something was done with in between are taken to be those of the model's last pass.
    Cost: 1 + 3 K forward passes' worth, and 2 in the backward.

    Args:
        model: the network. Inside DistributedDataParallel pass the wrapper's ``module``.
        rho: the radius.
        options: as for :class:`~torch_iam.IAMD`: ``steps``, ``start_norm``, ``probe``, ``divergence``,
            ``params``, ``metric``, ``eta``, ``batch_fraction``, ``seed``, ``detach_reference``, ``check``.

    >>> _ = torch.manual_seed(0)
    >>> model, x = nn.Linear(2, 3), torch.randn(4, 2)
    >>> penalty = InconsistencyPenalty(model, rho=0.1)
    >>> logits = model(x)
    >>> (logits.square().mean() + 1.0 * penalty(x, logits)).backward()
    >>> model.weight.grad.shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        model: nn.Module,
        rho: float = 0.1,
        *,
        steps: int = 1,
        start_norm: float | None = None,
        probe: str = "divergence",
        sign: str = "either",
        batch_fraction: float = 1.0,
        divergence: Divergence | None = None,
        params: Params = None,
        metric: str = "euclidean",
        eta: float = 0.01,
        output: Callable[[Output], Tensor] | None = None,
        seed: int | None = None,
        detach_reference: bool = False,
        check: bool = True,
    ) -> None:
        if sign == "ascent":
            raise ValueError(
                "sign='ascent' follows a loss, which a penalty does not see: 'either' or 'worst'."
            )
        self.model = model
        self.ball = Neighborhood(model, rho, params, metric, eta)
        self.maximizer = Maximizer(
            self.ball,
            divergence=divergence,
            output=logits_of if output is None else output,
            steps=steps,
            start_norm=start_norm,
            probe=probe,
            sign=sign,
            batch_fraction=batch_fraction,
            seed=seed,
        )
        self.detach_reference = detach_reference
        self._at_work = False
        self._unchecked = check
        self._listen()

    def __call__(self, inputs: Inputs, clean: Output) -> Tensor:
        """S on this batch, a scalar with a graph.

        Args:
            inputs: what the model's last forward pass was called with.
            clean: what it returned, or the logits ``[B, C]`` in it where ``output`` was not given.
        """
        if not torch.is_grad_enabled():
            raise RuntimeError(
                "A penalty is a term of a loss, and here gradients are switched off. To measure S, in a validation "
                "step for example, write iam.local_inconsistency(model, inputs, rho=...)."
            )
        logits = self.maximizer.output(clean)
        begun = self._moments.get(logits, self.visit)
        if begun is None:
            raise RuntimeError(
                "The penalty has seen no forward pass of its model: call the model first and hand over its "
                "logits, as in logits = model(x); loss = criterion(logits, y) + beta * penalty(x, logits). (A module "
                "that holds a penalty on itself needs a new one after it has been copied.)"
            )
        self.ball.check()
        visit = begun.elsewhere(inputs)
        self._at_work = True
        try:
            if self._unchecked:
                checks.differentiable(logits)
                checks.finite_inputs(inputs, wait=True)
                checks.still(visit, logits, self.maximizer.output)
                self._unchecked = False
            climb = self.maximizer.find(visit, logits)
            with disable_saved_tensors_hooks(RUN_AGAIN):
                perturbed = self.maximizer.output(visit.at(self.ball.moved(climb.delta, leaf=False)))
        finally:
            self._at_work = False
        reference = logits.detach() if self.detach_reference else logits
        return total(self.maximizer.divergence, reference, perturbed, inputs).mean

    @property
    def rho(self) -> float:
        """The radius; where groups have radii of their own, that of the first. Setting it scales all alike."""
        return self.ball.rho

    @rho.setter
    def rho(self, value: float) -> None:
        self.ball.rho = value

    def state_dict(self) -> dict[str, Any]:
        """The generator of the starts and the radii: load it to resume bit for bit."""
        return {"radii": self.ball.radii, "maximizer": self.maximizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        self.ball.radii = state["radii"]
        self.maximizer.load_state_dict(state["maximizer"])

    def _listen(self) -> None:
        self.visit: Visit | None = None
        self._moments: Any = WeakIdKeyDictionary()
        if not hasattr(self.model, "_forward_hooks"):  # a copy in the making, which holds this one itself
            return
        listener = _Listener(self)
        before = self.model.register_forward_pre_hook(listener.before)
        after = self.model.register_forward_hook(listener.after)
        for handle in (before, after):
            weakref.finalize(self, handle.remove)

    def begins(self, module: nn.Module) -> None:
        """A forward pass of the model is about to begin: keep what its random masks and buffers depend on."""
        if module is self.model and not self._at_work and torch.is_grad_enabled():
            self.visit = Visit(module, ())

    def ends(self, module: nn.Module, answer: Output) -> None:
        """The pass is over: what it began with belongs to these logits, as long as they live."""
        if module is self.model and not self._at_work and torch.is_grad_enabled() and self.visit is not None:
            self._moments[self.maximizer.output(answer)] = self.visit

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to a forward pass; a copy hears the passes of its own model."""
        return {name: kept for name, kept in vars(self).items() if name not in ("visit", "_moments")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._listen()


class _Listener:
    """The hooks on the model: they keep no penalty alive, and a copied or saved model comes without one."""

    def __init__(self, penalty: InconsistencyPenalty | None = None) -> None:
        self._penalty = None if penalty is None else weakref.ref(penalty)

    @property
    def penalty(self) -> InconsistencyPenalty | None:
        """Whoever listens, if it is still there."""
        return None if self._penalty is None else self._penalty()

    def before(self, module: nn.Module, args: Any) -> None:
        if (penalty := self.penalty) is not None:
            penalty.begins(module)

    def after(self, module: nn.Module, args: Any, answer: Output) -> None:
        if (penalty := self.penalty) is not None:
            penalty.ends(module, answer)

    def __reduce__(self) -> tuple[type[_Listener], tuple[()]]:
        return _Listener, ()
