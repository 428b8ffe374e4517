"""How long an epoch takes, also where it was begun by a process that is no more."""

from __future__ import annotations

import time


class Clock:
    """Time since the epoch began.

    Attributes:
        training: seconds spent on steps; NaN-free and monotonic.

    >>> clock = Clock(step=10)
    >>> clock.lap(step=12); clock.steps, clock.training > 0
    (2, True)
    """

    def __init__(self, step: int = 0, before: float = 0.0) -> None:
        self._before = before
        self._began = self._looked = time.perf_counter()
        self._first = step
        self.steps = 0
        self.training = 0.0

    @property
    def seconds(self) -> float:
        """All of them: steps, evaluation, files, in this process and those before."""
        return self._before + time.perf_counter() - self._began

    @property
    def steps_per_second(self) -> float:
        """In this process and epoch, up to the last lap."""
        return self.steps / self.training if self.training else 0.0

    def due(self, every: float) -> bool:
        """Whether the last lap was so many seconds ago."""
        return time.perf_counter() - self._looked >= every

    def lap(self, step: int) -> None:
        """Note how far the steps are; on a GPU only after something has waited for them."""
        self._looked = time.perf_counter()
        self.training, self.steps = self._looked - self._began, step - self._first
