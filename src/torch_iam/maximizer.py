"""How an objective looks for delta, with all that the search carries from step to step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from torch_iam.ascent import PROBES, Climb, ExpectedDivergence, power_iteration
from torch_iam.derivatives import Derivatives
from torch_iam.directions import (
    Direction,
    add_where,
    clear_unless,
    copy_of,
    resolution,
    scale_,
    total_norm,
)
from torch_iam.divergence import CategoricalKL, Divergence
from torch_iam.inputs import Output, batch_size, logits_of, rows
from torch_iam.neighborhood import Neighborhood
from torch_iam.options import above_zero, count_of
from torch_iam.perturb import Visit

STARTS = ("random", "carry")
SIGNS = ("either", "worst", "ascent")


class Maximizer:
    """Finds the direction in ``ball`` along which the outputs change most, for one batch at a time.

    Args:
        ball: which weights move, and how far.
        divergence: how far apart two outputs are.
        output: the tensor of a model's answer that counts.
        steps: K, the ascent steps of a search; by default 1 from a random start, 0 from a carried one.
        start: ``"random"`` draws a start anew; ``"carry"`` begins at the last direction with a random sign.
        start_norm: expected norm of a random start; by default what the compute dtype resolves.
        probe: ``"divergence"`` differentiates the divergence at a finite distance; ``"fisher"`` multiplies
            with the Fisher matrix instead and needs no start norm.
        sign: of delta and -delta, ``"either"`` takes what falls out, ``"worst"`` the larger divergence
            (two forward passes more), ``"ascent"`` the one along which the loss rises (one and a backward more).
        batch_fraction: share of the batch, from its beginning, that the ascent sees.
        seed: of the random starts and signs, which have a generator of their own.
        combine: what is done with an ascent gradient before it is used; several devices average it.
    """

    def __init__(
        self,
        ball: Neighborhood,
        *,
        divergence: Divergence | None = None,
        output: Callable[[Output], Tensor] | None = None,
        steps: int | None = None,
        start: str = "random",
        start_norm: float | None = None,
        probe: str = "divergence",
        sign: str = "either",
        batch_fraction: float = 1.0,
        seed: int | None = None,
        combine: Callable[[Direction], None] | None = None,
    ) -> None:
        _one_of("start", start, STARTS)
        _one_of("probe", probe, PROBES)
        _one_of("sign", sign, SIGNS)
        least = 0 if start == "carry" else 1
        if not 0 < batch_fraction <= 1:
            raise ValueError(f"batch_fraction must be in (0, 1], found {batch_fraction}.")
        self.ball = ball
        self.divergence = CategoricalKL() if divergence is None else divergence
        self.output = logits_of if output is None else output
        self.derivatives = Derivatives(self.output)
        self.steps = least if steps is None else count_of("steps", steps, least, f" with start={start!r}")
        self.start_norm = None if start_norm is None else above_zero("start_norm", start_norm)
        self.start, self.probe, self.sign = start, probe, sign
        self.batch_fraction = batch_fraction
        self.generator = torch.Generator(ball.weights[0].device)
        self.generator.manual_seed(torch.initial_seed() if seed is None else seed)
        self.carried: Direction | None = None
        self.combine = combine
        self._resolution_checked = False

    @property
    def one_pass(self) -> bool:
        """Whether the carried direction is used as it is, without an ascent step."""
        return self.start == "carry" and self.steps == 0

    def find(
        self, visit: Visit, clean: Tensor, loss_gradient: Callable[[], Direction] | None = None
    ) -> Climb:
        """Search from a start of its own; nothing of the model changes.

        Args:
            visit: the batch.
            clean: of the model's output at theta the tensor that counts.
            loss_gradient: gives the gradient of the loss there, for ``sign="ascent"``.
        """
        field = self.field(visit, clean)
        slope = field.fisher if self.probe == "fisher" else field.slope
        steps = max(self.steps, 1) if self.carried is None else self.steps
        climb = power_iteration(self.ball, slope, *self._begin(steps))
        if self.sign != "either":
            self._turn(climb.delta, field, loss_gradient)
        if self.start == "carry" and not self.one_pass:
            self.remember(climb.delta, climb.ok)
        return climb

    def field(self, visit: Visit, clean: Tensor) -> ExpectedDivergence:
        """What is climbed: the expected divergence over the batch, or over the first part of it."""
        logits, size = clean.detach(), batch_size(visit.inputs)
        # .07 of 100 are 7, though floats make it a little more.
        seen = max(1, math.ceil(self.batch_fraction * size - 1e-9))
        if seen < size:
            # Another batch for BatchNorm and other dropout masks: it needs a clean pass of its own.
            visit = visit.elsewhere(rows(visit.inputs, 0, seen, size))
            with torch.no_grad():
                logits = self.output(visit.at({}))
        visits = [(visit, logits)]
        return ExpectedDivergence(
            self.ball, self.divergence, self.output, visits, self.combine, self.derivatives
        )

    @torch.no_grad()
    def remember(self, direction: Direction, ok: Tensor) -> None:
        """Carry ``direction``, of any length, to the next search; where it is not ``ok`` the last good one stays."""
        if self.carried is None:
            raise RuntimeError("A direction is carried on from a search, and there was none.")
        for group, fine in zip(self.ball.groups, ok, strict=True):
            kept = self.carried[group.rows]
            clear_unless(~fine, kept)
            add_where(fine, kept, direction[group.rows])

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next search depends on."""
        carried = None
        if self.carried is not None:
            carried = dict(zip(self.ball.names, copy_of(self.carried), strict=True))
        return {"generator": self.generator.get_state(), "carried": carried}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``."""
        carried = state["carried"] if self.start == "carry" else None
        if carried is not None:
            _match(self.ball, carried)
        self.generator.set_state(state["generator"].cpu())
        if carried is None:
            self.carried = None
            return
        if self.carried is None:
            self.carried = self.ball.zeros()
        for part, name in zip(self.carried, self.ball.names, strict=True):
            part.copy_(carried[name])  # in place: a captured graph refers to this memory

    def _begin(self, steps: int) -> tuple[Direction, int, Tensor | None]:
        """Where to start, in how many steps, and whether it is a direction at all.

        A random direction, or the carried one with a random sign.
        """
        if self.carried is None or self.start != "carry":
            self._check_resolution()
            start = self.ball.draw(self.generator, self.start_norm)
            if self.start == "carry":  # until a step succeeds: after zeros there would be none to go on from
                self.carried = copy_of(start)
            return start, steps, None
        draw = torch.randint(0, 2, (), generator=self.generator, device=self.generator.device)
        start, ok = self.ball.resized_where_possible(self.carried, sign=2 * draw - 1)
        return start, steps, ok

    def _turn(
        self, delta: Direction, field: ExpectedDivergence, loss_gradient: Callable[[], Direction] | None
    ) -> None:
        """Flip delta in place where the other side is the one asked for."""
        if self.sign == "worst":
            gain = field.value(list(torch._foreach_neg(delta))) - field.value(delta)
        elif loss_gradient is None:
            raise ValueError("sign='ascent' needs a loss; a penalty without one takes 'either' or 'worst'.")
        else:
            rises = [(d * g).sum(dtype=torch.float64) for d, g in zip(delta, loss_gradient(), strict=True)]
            gain = -torch.stack(rises).sum()
        if self.combine is not None:
            self.combine([gain])
        scale_(delta, torch.where(gain > 0, -1.0, 1.0))

    def _check_resolution(self) -> None:
        if self.start_norm is None or self._resolution_checked or self.probe == "fisher":
            return
        self._resolution_checked = True
        weights = [weight.detach() for weight in self.ball.weights]
        finest = resolution(weights) * float(total_norm(weights))
        if self.start_norm < finest:
            warnings.warn(
                f"start_norm={self.start_norm:g} is below what the compute dtype resolves at these weights "
                f"(about {finest:.2g}): rounding will decide the direction. Leave start_norm out, or use "
                "probe='fisher', which has no start norm.",
                stacklevel=5,
            )


def _match(ball: Neighborhood, state: Mapping[str, Tensor]) -> None:
    expected = dict(zip(ball.names, ball.weights, strict=True))
    missing = [name for name in expected if name not in state]
    if missing or len(state) != len(expected):
        raise ValueError(
            f"The state carries a direction for {len(state)} weights, this objective moves {len(expected)}; "
            f"first without one: {missing[0] if missing else None}. Build the objective with the same params=."
        )
    for name, weight in expected.items():
        if state[name].shape != weight.shape:
            raise ValueError(
                f"The carried direction of {name!r} has shape {tuple(state[name].shape)}, the weight "
                f"{tuple(weight.shape)}: the state belongs to another model."
            )


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {allowed}, found {value!r}.")
