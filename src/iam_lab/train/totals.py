"""Means over an epoch, summed on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class Totals:
    """Sums of named scalars over the finite steps; reading them is the only thing that waits.

    >>> totals = Totals(torch.device("cpu"))
    >>> totals.add({"loss": torch.tensor(1.0)}, torch.tensor(True))
    >>> totals.add({"loss": torch.tensor(float("nan"))}, torch.tensor(False))
    >>> totals.means()
    {'loss': 1.0}
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.clear()

    def clear(self) -> None:
        """Start over."""
        self.names: list[str] = []
        self.sums = torch.zeros(0, dtype=torch.float64, device=self.device)

    @torch.no_grad()
    def add(self, values: Mapping[str, Tensor], finite: Tensor) -> None:
        """Add a step, unless it was left out."""
        if not self.names:
            self.names = list(values)
            self.sums = torch.zeros(len(values) + 1, dtype=torch.float64, device=self.device)
        row = torch.stack([*(value.double() for value in values.values()), finite.double()])
        self.sums += torch.where(finite, row, 0.0)

    def means(self) -> dict[str, float | None]:
        """The mean of each; None where no step was finite."""
        if not self.names:
            return {}
        *sums, count = self.sums.tolist()
        return {name: total / count if count else None for name, total in zip(self.names, sums, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        """Names and sums."""
        return {"names": list(self.names), "sums": self.sums.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.names, self.sums = list(state["names"]), state["sums"].to(self.device).clone()
