"""Side by side on one GPU: the passes of a captured step that need nothing of each other.

The clean pass and the first pass at other weights begin from the same batch and meet where their outputs are
compared; once the slopes at both outputs are known, both backward passes may run. One stream would put all of
this in a row, and a GPU is not full at the end of every kernel. A second stream lets the branches overlap:

    first stream   begun -> clean pass -> passed            settled -> backward of the clean pass -> joined
    second stream  begun -> search, perturbed pass -> passed -> slopes -> settled -> backward -> joined

Only a step that becomes a CUDA graph may have a second stream (``capture(..., overlap=True)``): launched kernel by
kernel, a step waits for the CPU and not for the GPU. Without it everything here does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_second: ContextVar[torch.cuda.Stream | None] = ContextVar("second", default=None)


@contextmanager
def second_stream(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """Steps that begin inside may use this stream beside the current one; None is no second one."""
    token = _second.set(stream)
    try:
        yield
    finally:
        _second.reset(token)


class Fork:
    """Where a step parts in two branches, and where these wait for each other.

    A tensor that one branch made and the other reads must live until :meth:`join`: its memory belongs to the
    stream it was made on, which would use it again without asking the other.
    """

    def __init__(self) -> None:
        self.stream = _second.get()
        self._events: dict[str, torch.cuda.Event] = {}
        self._mark("begun")

    @contextmanager
    def beside(self) -> Iterator[None]:
        """What is done inside needs nothing of what came since the fork was made, until it waits for it."""
        if self.stream is None:
            yield
            return
        with torch.cuda.stream(self.stream):
            self._wait("begun")
            yield
            self._mark("joined")

    def passed(self) -> None:
        """The clean pass is done."""
        self._mark("passed")

    def meet(self) -> None:
        """Go on when the clean pass is done, wherever that is."""
        self._wait("passed")

    def settle(self) -> None:
        """The slope at the clean output is known."""
        self._mark("settled")

    def take_over(self) -> None:
        """Go on when the slope at the clean output is known."""
        self._wait("settled")

    def join(self) -> None:
        """Go on when all that was done beside is done."""
        self._wait("joined")

    def _mark(self, name: str) -> None:
        if self.stream is not None:
            self._events[name] = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._events[name].record()

    def _wait(self, name: str) -> None:
        if name in self._events:
            self._events[name].wait()
