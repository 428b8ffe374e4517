"""What is learned: the part of a training that differs between supervised, semi- and self-supervised learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from iam_lab.recipes.few_labels import TaskName
from iam_lab.recipes.schema import Config
from torch_iam import Objective, Step

Pause = Callable[[], None]
"""Called between batches of a long computation; raises where the run is to end."""


class Task(Protocol):
    """Batches, a gradient, and a judgement.

    The trainer knows nothing else of what it trains: a batch is whatever :meth:`batches` yields and
    :meth:`backward` takes. Everything the next batch and the next gradient depend on, beside the model and
    torch's global random streams, is in :meth:`state_dict`.

    Attributes:
        model: what is trained and saved, out of ``torch.compile``.
        objective: whose gradient :meth:`backward` adds, maybe beside others.
        batches_per_epoch: how many batches are a pass over the data.
        images_per_batch: for throughput.
    """

    model: nn.Module
    objective: Objective
    batches_per_epoch: int
    images_per_batch: int

    def batches(self) -> Iterator[Any]:
        """Batches without end, from where the data is."""

    def backward(
        self, batch: Any, *, loss_scale: float = 1.0, scaler: torch.amp.GradScaler | None = None
    ) -> Step:
        """Add the gradient on a batch into ``.grad``, without a look at any number on the device."""

    def watch(self, batch: Any, step: Step) -> Mapping[str, Tensor]:
        """More numbers of a step, scalars on the device, whose mean over the epoch is recorded."""

    def evaluate(self, model: nn.Module, pause: Pause) -> dict[str, float]:
        """Errors and losses of ``model``, the trained one or its average, by their names in the metrics."""

    def measure(self, model: nn.Module, pause: Pause) -> dict[str, float | None]:
        """S_rho and the like, by their names in the metrics."""

    def counts(self) -> dict[str, int]:
        """What has been counted since the run began, read once an epoch."""

    def files(self) -> Mapping[str, Mapping[str, Any]]:
        """What was drawn beside the config, for the folder of the run: JSON objects by the names of their files."""

    def state_dict(self) -> dict[str, Any]:
        """Where the data is, and what the objective carries."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""


def build_task(config: Config, device: torch.device) -> Task:
    """The task that a config names, its weights freshly drawn."""
    module, name = TASKS[config.task]
    made: Task = getattr(import_module(f"iam_lab.train.{module}"), name)(config, device)
    return made


TASKS: Mapping[TaskName, tuple[str, str]] = MappingProxyType(
    {
        "supervised": ("supervised", "Supervised"),
        "semi-supervised": ("semi_supervised", "SemiSupervised"),
        "fixmatch": ("fixmatch", "FixMatch"),
        "simclr": ("contrastive", "SimCLR"),
    }
)
"""Name of a task to its module and class, imported when it is asked for."""
