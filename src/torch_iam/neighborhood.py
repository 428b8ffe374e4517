r"""Which weights may move, in what metric, and how far.

A neighborhood of theta is a ball, or one ball for every group of weights,

.. math:: \{\delta : \|T^{-1} \delta\| \le \rho\},

with T = 1 (``metric="euclidean"``) or T = abs(theta) + eta (``metric="adaptive"``, ASAM's scaling, 1 for
biases). A direction is a list of tensors, one for every weight that may move, in the order of
``named_parameters()``. Nothing here changes a weight or waits for a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torch_iam.directions import (
    Direction,
    clear_unless,
    copy_of,
    gaussian,
    relative_start,
    scale_,
    scaled,
    total_norm,
)
from torch_iam.options import zero_or_more
from torch_iam.selection import Params, admit, check_rho, chosen_of, groups_of, is_bias

METRICS = ("euclidean", "adaptive")


@dataclass(frozen=True)
class Group:
    """A run of weights that share one ball."""

    rows: slice
    rho: float


class Neighborhood:
    r"""The ball around the weights of ``model`` in which delta lives.

    Args:
        model: the network; its frozen weights never move.
        rho: the radius; used for every group that has none of its own.
        params: which weights move: a filter ``(name, weight) -> bool``, an iterable of weights, or groups
            ``[{"params": filter or weights, "rho": 0.05}, ...]``, each with a ball of its own. All
            trainable weights by default.
        metric: ``"euclidean"`` or ``"adaptive"``.
        eta: keeps the adaptive metric away from zero where a weight is.

    >>> ball = Neighborhood(nn.Linear(3, 2), rho=0.1)
    >>> delta, ok = ball.to_sphere(ball.draw(torch.Generator().manual_seed(0), norm=1.0))
    >>> ball.lengths(delta)
    tensor([0.1000])
    """

    def __init__(
        self,
        model: nn.Module,
        rho: float,
        params: Params = None,
        metric: str = "euclidean",
        eta: float = 0.01,
    ) -> None:
        admit(model)
        if metric not in METRICS:
            raise ValueError(f"metric must be one of {METRICS}, found {metric!r}.")
        self.metric = metric
        self.eta = zero_or_more("eta", eta) if metric == "adaptive" else eta
        self.names: list[str] = []
        self.weights: list[nn.Parameter] = []
        self.groups: list[Group] = []
        for spec in groups_of(params):
            chosen = chosen_of(model, spec.get("params"))
            taken = {id(weight) for weight in self.weights}
            twice = [name for name, weight in chosen if id(weight) in taken]
            if twice:
                raise ValueError(f"{twice[0]!r} is in two groups of params=; a weight belongs to one.")
            start = len(self.weights)
            self.names += [name for name, _ in chosen]
            self.weights += [weight for _, weight in chosen]
            radius = check_rho(spec.get("rho", rho))
            self.groups.append(Group(slice(start, len(self.weights)), radius))
        self.model = model
        self._known = {name: (weight, weight.requires_grad) for name, weight in model.named_parameters()}

    @property
    def rho(self) -> float:
        """The radius of the ball (of the first, where there are several)."""
        return self.groups[0].rho

    @rho.setter
    def rho(self, value: float) -> None:
        """Set the first radius and scale the others along, so that a schedule may move them."""
        first, before = check_rho(value), self.rho
        self.radii = [first if radius == before else radius * first / before for radius in self.radii]

    @property
    def radii(self) -> list[float]:
        """The radius of every group."""
        return [group.rho for group in self.groups]

    @radii.setter
    def radii(self, values: Sequence[float]) -> None:
        if len(values) != len(self.groups):
            raise ValueError(
                f"There are {len(self.groups)} groups of weights, found radii for {len(values)}: make the objective "
                "with the same params=."
            )
        pairs = zip(self.groups, values, strict=True)
        self.groups = [Group(group.rows, check_rho(radius)) for group, radius in pairs]

    def check(self) -> None:
        """Raise where a weight is another one, or frozen or set free, since: the ball is around those there were."""
        now = dict(self.model.named_parameters())
        for name in self._known | now:
            weight, trainable = self._known.get(name, (None, False))
            found = now.get(name)
            if found is None or found is not weight:
                how = "gone" if found is None else "new" if weight is None else "another tensor"
                raise ValueError(
                    f"{name!r} is {how} since the objective was made: a layer was replaced, or "
                    "load_state_dict(..., assign=True) was called. Make the objective anew, and the optimizer too."
                )
            if found.requires_grad != trainable:
                raise ValueError(
                    f"{name!r} was {'trainable' if trainable else 'frozen'} when the objective was made and is "
                    f"{'frozen' if trainable else 'trainable'} now. Make the objective anew whenever requires_grad "
                    "changes: which weights delta moves was decided then."
                )

    def here(self) -> dict[str, Tensor]:
        """The weights that may move, by name, outside of any graph."""
        return {name: weight.detach() for name, weight in zip(self.names, self.weights, strict=True)}

    def zeros(self) -> Direction:
        """The direction that moves nothing."""
        return [torch.zeros_like(weight) for weight in self.weights]

    @torch.no_grad()
    def draw(self, generator: torch.Generator, norm: float | None = None) -> Direction:
        r"""A Gaussian direction whose expected norm in the metric is ``norm``, by default one that suits.

        The default is a share of the norm of the weights themselves that the compute dtype resolves
        (:func:`relative_start`): a start far below it would be rounded away.
        """
        direction = gaussian(self.weights, generator)
        for group in self.groups:
            rows = direction[group.rows]
            size = sum(weight.numel() for weight in self.weights[group.rows])
            scale = self.start_norm(group) if norm is None else norm
            share = scale / math.sqrt(size)
            scale_(rows, share) if isinstance(share, Tensor) else torch._foreach_mul_(rows, share)
        self._scale(direction)
        return direction

    def start_norm(self, group: Group) -> Tensor:
        """The default norm of a start: a share of the weights' norm that survives rounding."""
        weights = self._unscaled([weight.detach() for weight in self.weights[group.rows]], group)
        return relative_start(weights) * total_norm(weights).clamp(min=1.0)

    @torch.no_grad()
    def to_sphere(self, gradient: Direction) -> tuple[Direction, Tensor]:
        r"""The step of length rho that raises a linear function with this gradient most, in place.

        .. math:: \delta = \rho\, \frac{T^2 g}{\|T g\|}

        Returns:
            The direction, and for every group whether it is a step at all (``[groups]``): a zero or
            non-finite gradient gives delta = 0 there, never NaN. All on the device: nothing waits.
        """
        self._scale(gradient)
        fine = []
        for group in self.groups:
            rows = gradient[group.rows]
            factor, ok = _factor(group.rho, total_norm(rows), rows)
            scale_(rows, factor)
            clear_unless(ok, rows)
            fine.append(ok)
        self._scale(gradient)
        return gradient, _row(fine)

    @torch.no_grad()
    def uphill(self, gradient: Direction) -> tuple[Direction, Tensor]:
        """The direction of :meth:`to_sphere` at whatever length, and whether there is one (``[groups]``).

        In the memory of ``gradient`` where the metric is Euclidean. A part that is no direction may hold NaN.
        """
        if self.metric == "adaptive":
            gradient = copy_of(gradient)
            self._scale(gradient)
        fine = []
        for group in self.groups:
            rows = gradient[group.rows]
            fine.append(_factor(group.rho, total_norm(rows), rows)[1])
        self._scale(gradient)
        return gradient, _row(fine)

    def resized(self, direction: Direction, sign: Tensor | float = 1.0) -> Direction:
        """The same direction, or its opposite with ``sign=-1``, at length rho in new storage; zero stays zero."""
        return self.resized_where_possible(direction, sign)[0]

    @torch.no_grad()
    def resized_where_possible(
        self, direction: Direction, sign: Tensor | float = 1.0
    ) -> tuple[Direction, Tensor]:
        """As :meth:`resized`, and for every group whether it had a length to change (``[groups]``)."""
        parts: Direction = []
        fine = []
        for group, length in zip(self.groups, self.lengths(direction), strict=True):
            rows = direction[group.rows]
            factor, ok = _factor(group.rho, length, rows)
            parts += scaled(rows, factor * sign)
            fine.append(ok)
        return parts, _row(fine)

    @torch.no_grad()
    def into_ball(self, direction: Direction) -> Direction:
        """The nearest direction (in the metric) that is inside every ball, in place."""
        for group, length in zip(self.groups, self.lengths(direction), strict=True):
            rows = direction[group.rows]
            scale_(rows, (group.rho / length).clamp(max=1.0))
        return direction

    @torch.no_grad()
    def lengths(self, direction: Direction) -> Tensor:
        """The length of every group's part in the metric, ``[groups]``."""
        return _row([total_norm(self._unscaled(direction[g.rows], g)) for g in self.groups])

    def moved(self, delta: Direction, *, leaf: bool) -> dict[str, Tensor]:
        """The weights at theta + delta by name, in the storage of ``delta``, which is used up.

        Args:
            delta: where to; pass a copy to keep it.
            leaf: True for tensors to take a gradient at; False for a sum that passes its gradient on to
                the weights themselves.
        """
        there = [
            part.detach() for part in delta
        ]  # a gradient may be a view, which autograd will not write to
        torch._foreach_add_(there, [weight.detach() if leaf else weight for weight in self.weights])
        for part in there if leaf else ():
            part.requires_grad_()
        return dict(zip(self.names, there, strict=True))

    def _scale(self, direction: Direction) -> None:
        """Multiply by T in place."""
        if self.metric == "adaptive":
            rows = [i for i, name in enumerate(self.names) if not is_bias(name)]
            if not rows:
                return
            scales = torch._foreach_abs([self.weights[i].detach() for i in rows])
            torch._foreach_add_(scales, self.eta)
            torch._foreach_mul_([direction[i] for i in rows], scales)

    def _unscaled(self, direction: Direction, group: Group) -> Direction:
        """Divided by T, in new storage where that changes anything."""
        if self.metric == "euclidean":
            return direction
        names, weights = self.names[group.rows], self.weights[group.rows]
        return [
            part if is_bias(name) else part / self._size(weight)
            for name, weight, part in zip(names, weights, direction, strict=True)
        ]

    def _size(self, weight: Tensor) -> Tensor:
        """T, and 1 where it is 0: no direction leads there, and 0 / 0 is no length."""
        size = weight.detach().abs() + self.eta
        return size if self.eta > 0 else size.masked_fill_(size == 0, 1.0)


def _factor(rho: float, length: Tensor, rows: Direction) -> tuple[Tensor, Tensor]:
    """What brings ``rows`` of this length to rho, and whether that is possible; 0 where it is not.

    It is not where the length is 0, infinite or NaN.
    """
    factor = torch.nan_to_num(rho / length, nan=0.0, posinf=0.0)
    if any(part.dtype == torch.float16 for part in rows):  # as far as `scale_` reaches
        factor = factor.masked_fill(factor >= 2.0**29, 0.0)
    return factor, factor > 0


def _row(numbers: list[Tensor]) -> Tensor:
    """One number for every group as a tensor, ``[groups]``; mostly there is one group and nothing to copy."""
    return numbers[0].unsqueeze(0) if len(numbers) == 1 else torch.stack(numbers)
