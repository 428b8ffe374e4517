"""What SAM and IAM share: a look at weights nearby, in a ball of some radius."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from torch import Tensor, nn

from torch_iam.inputs import Inputs, Output
from torch_iam.neighborhood import Neighborhood
from torch_iam.objectives.base import Batch, Criterion, Objective
from torch_iam.selection import Params


class BallOptions(TypedDict, total=False):
    """The options of every objective that moves weights; what each does stands at :class:`~torch_iam.IAMD`."""

    params: Params
    metric: str
    eta: float
    sub_batch: int | None
    output: Callable[[Output], Tensor] | None
    sync: str
    check: bool


class PerturbedObjective(Objective):
    """An objective that looks at theta + delta.

    Args:
        model: the network.
        rho: the radius.
        params, metric, eta: where delta may lie, see :class:`~torch_iam.Neighborhood`.
        sub_batch, output, check: see :class:`~torch_iam.objectives.base.Objective`.
        sync: on several devices, ``"local"`` for a delta on every rank, ``"global"`` for one of all.
    """

    def __init__(
        self,
        model: nn.Module,
        rho: float,
        *,
        params: Params = None,
        metric: str = "euclidean",
        eta: float = 0.01,
        sub_batch: int | None = None,
        output: Callable[[Output], Tensor] | None = None,
        sync: str = "local",
        check: bool = True,
    ) -> None:
        super().__init__(model, sub_batch=sub_batch, output=output, check=check)
        self.ball = Neighborhood(self.model, rho, params, metric, eta)
        self.combine = self.ranks.combine(sync)

    @property
    def rho(self) -> float:
        """The radius; where groups have radii of their own, that of the first. Setting it scales all alike."""
        return self.ball.rho

    @rho.setter
    def rho(self, value: float) -> None:
        self.ball.rho = value

    def state_dict(self) -> dict[str, Any]:
        """The counters and the radii, which a schedule may have moved."""
        return super().state_dict() | {"radii": self.ball.radii}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        super().load_state_dict(state)
        self.ball.radii = state["radii"]

    def _admitted(
        self, inputs: Inputs, targets: Any, criterion: Criterion, unlabeled: Inputs | None
    ) -> Batch:
        self.ball.check()
        return super()._admitted(inputs, targets, criterion, unlabeled)


def refuse_unknown(kind: type, given: Mapping[str, Any], options: type) -> None:
    """An error that lists the options there are, where one is given that does not exist."""
    allowed: frozenset[str] = options.__optional_keys__  # type: ignore[attr-defined]
    unknown = sorted(given.keys() - allowed)
    if unknown:
        named = inspect.signature(kind).parameters.keys() - {"model", "options"}
        known = sorted(allowed | named)
        raise TypeError(f"{kind.__name__} has no option {unknown[0]!r}; its options are {', '.join(known)}.")
