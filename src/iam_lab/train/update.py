"""The optimizer's step, with what belongs around it: clipping, and leaving out what is not finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torch_iam.directions import clear_unless


class Update:
    """Steps an optimizer unless the gradient is NaN or infinite, and counts how often it is.

    A fused optimizer is told on the device to leave a step out (as a GradScaler tells it), so that nothing
    waits for the answer and the whole may lie in a CUDA graph; any other is asked to step or not.
    BatchNorm's running statistics are put back as well where the step is left out: one overflow in a
    forward pass would spoil them for good.

    Args:
        model: whose gradients and buffers count.
        optimizer: what steps.
        clip_norm: largest norm of the gradient.
        scaler: for fp16.

    Attributes:
        skipped: steps left out so far, on the device.
        run: how many of the last steps in a row were left out, on the device.
        norm: of the last gradient, before clipping, on the device.

    >>> model = nn.Linear(1, 1)
    >>> update = Update(model, torch.optim.SGD(model.parameters(), lr=0.1))
    >>> update.remember(); model(torch.tensor([[float("nan")]])).sum().backward(); update.step()
    >>> int(update.skipped), bool(model.weight.isfinite())
    (1, True)
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        clip_norm: float | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.optimizer, self.clip_norm, self.scaler = optimizer, clip_norm, scaler
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        device = self.weights[0].device
        self.skipped = torch.zeros((), dtype=torch.long, device=device)
        self.run = torch.zeros((), dtype=torch.long, device=device)
        self.norm = torch.zeros((), device=device)
        self._ok = torch.ones((), dtype=torch.bool, device=device)
        self._buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        self._before: list[Tensor] = []
        self._fresh = True
        self.fused = scaler is None and all(group.get("fused") for group in optimizer.param_groups)
        if self.fused:
            optimizer.register_step_pre_hook(lambda *_: self._inspect())

    @torch.no_grad()
    def remember(self) -> None:
        """Before the forward pass: keep the buffers that the step may spoil."""
        if not self._before:
            self._before = [torch.empty_like(buffer) for buffer in self._buffers]
        if self._buffers:
            torch._foreach_copy_(self._before, self._buffers)

    def step(self) -> None:
        """Apply the gradient in ``.grad``, or leave it out, and clear it."""
        if self.fused:
            self.optimizer.step()  # inspects the gradient in its hook
        else:
            if self.scaler is not None:
                self.scaler.unscale_(self.optimizer)
            self._inspect()
            if self.scaler is not None:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            elif bool(self._ok):
                self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.count()

    @torch.no_grad()
    def count(self) -> None:
        """After the optimizer's step, also one that a graph has replayed: count, and mend the buffers."""
        self.skipped += ~self._ok
        self.run.add_(1).mul_(~self._ok)
        if self._fresh:
            # A fused SGD that leaves out its very first step has taken memory for its momenta and not written it.
            if states := self._states():
                clear_unless(self._ok, states)
            self._fresh = False
        if self._before:
            clear_unless(self._ok, self._buffers)
            clear_unless(~self._ok, self._before)
            torch._foreach_add_(self._buffers, self._before)

    @property
    def finite(self) -> Tensor:
        """Whether the last step was made, on the device."""
        return self._ok

    def state_dict(self) -> dict[str, Any]:
        """The counts, and the scaler's scale."""
        scaler = None if self.scaler is None else self.scaler.state_dict()
        return {"skipped": self.skipped.clone(), "run": self.run.clone(), "scaler": scaler}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.skipped.copy_(state["skipped"])
        self.run.copy_(state["run"])
        self._fresh = False
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])

    def _states(self) -> list[Tensor]:
        """What the optimizer keeps in the weights' own dtype."""
        kept = [value for state in self.optimizer.state.values() for value in state.values()]
        dtype = self.weights[0].dtype
        return [value for value in kept if isinstance(value, Tensor) and value.dtype == dtype]

    @torch.no_grad()
    def _inspect(self) -> None:
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        # Single precision: it only decides about clipping and skipping, and costs a fifth of double's on a CPU.
        wide = torch.promote_types(gradients[0].dtype, torch.float32)
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, 2, dtype=wide)))
        self.norm.copy_(norm)
        self._ok.copy_(torch.isfinite(norm))
        if self.clip_norm is not None:
            scale = (self.clip_norm / norm).clamp(max=1.0)
            torch._foreach_mul_(gradients, scale.to(gradients[0].dtype))
        if self.fused:
            self.optimizer.found_inf = (~self._ok).to(torch.float32)  # type: ignore[attr-defined]
