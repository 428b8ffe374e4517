"""What IAM-S and IAM-D share: the search for delta, which needs no labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack, cast

from torch import Tensor, nn

from torch_iam.directions import Direction
from torch_iam.divergence import Divergence, total
from torch_iam.maximizer import Maximizer
from torch_iam.objectives.base import Batch
from torch_iam.objectives.perturbed import BallOptions, PerturbedObjective, refuse_unknown
from torch_iam.perturb import Visit, gradients


class SearchOptions(BallOptions, total=False):
    """The options of IAM-D and IAM-S alike; what each does stands at :class:`~torch_iam.IAMD`."""

    steps: int | None
    start: str
    start_norm: float | None
    probe: str
    sign: str
    batch_fraction: float
    divergence: Divergence | None
    seed: int | None


class InconsistencyObjective(PerturbedObjective):
    """What IAM-S and IAM-D share: the search for delta, which sees unlabelled inputs too."""

    uses_unlabeled = True

    def __init__(self, model: nn.Module, rho: float, **options: Unpack[SearchOptions]) -> None:
        refuse_unknown(type(self), options, SearchOptions)
        of_ball = BallOptions.__optional_keys__
        ball = cast(BallOptions, {name: given for name, given in options.items() if name in of_ball})
        super().__init__(model, rho, **ball)
        if options.get("start") == "carry" and self.sub_batch is not None:
            raise ValueError(
                "start='carry' keeps one direction, and sub_batch= needs one for every sub-batch: "
                "use start='random'."
            )
        search: dict[str, Any] = {name: given for name, given in options.items() if name not in of_ball}
        search["seed"] = self.ranks.seed(options.get("seed"), options.get("sync", "local"))
        self.maximizer = Maximizer(self.ball, output=self.output, combine=self.combine, **search)

    def state_dict(self) -> dict[str, Any]:
        """The counters, the generator of the starts, and a carried direction."""
        return super().state_dict() | {"maximizer": self.maximizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        super().load_state_dict(state)
        self.maximizer.load_state_dict(state["maximizer"])

    def _inconsistency(self, visit: Visit, clean: Tensor, perturbed: Tensor) -> Tensor:
        return total(self.maximizer.divergence, clean, perturbed, visit.inputs).mean

    def _loss_gradient(self, visit: Visit, batch: Batch) -> Callable[[], Direction]:
        """The gradient of the loss at the weights, from a forward pass of its own when it is asked for.

        The clean pass keeps its graph to itself: a compiled one may be walked through only once.
        """
        return lambda: visit.at({}, lambda output: gradients(batch.loss(output), self.ball.weights))
