"""How far a measure is, on stderr: in place on a terminal, elsewhere a plain line now and then."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from torch import nn

Tell = Callable[[str], None]
"""Takes a line of news, and may drop it."""

ON_TERMINAL, IN_FILE = 0.2, 30.0
"""Seconds between two news."""

CLEARED = "\r\x1b[K"


class Ticker:
    r"""Writes news no faster than somebody reads them.

    >>> import io
    >>> seconds = iter([0.0, 10.0, 40.0])
    >>> ticker = Ticker(io.StringIO(), lambda: next(seconds))
    >>> ticker.tell("early"); ticker.tell("later")
    >>> ticker.stream.getvalue()
    'later\n'
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.clock = clock
        self.live = self.stream.isatty()
        self.every = ON_TERMINAL if self.live else IN_FILE
        self.last, self.shown = clock(), False

    def tell(self, news: str) -> None:
        """Show it, unless something was shown just now."""
        now = self.clock()
        if now - self.last < self.every:
            return
        self.last = now
        if self.live:
            width = shutil.get_terminal_size().columns - 1  # a wrapped line could not be taken back
            self.stream.write(CLEARED + news[:width])
            self.shown = True
        else:
            self.stream.write(f"{news}\n")
        self.stream.flush()

    def clear(self) -> None:
        """Leave the line as it was."""
        if self.shown:
            self.stream.write(CLEARED)
            self.stream.flush()
            self.shown = False


@contextmanager
def passes(model: nn.Module, name: str, total: int, tell: Tell) -> Iterator[None]:
    """Tell about every forward pass of ``model``, of ``total`` or so."""
    done = 0

    def note(module: nn.Module, arguments: Any) -> None:
        nonlocal done
        done += 1
        tell(f"{name}: {done} of about {max(done, total)} passes")

    handle = model.register_forward_pre_hook(note)
    try:
        yield
    finally:
        handle.remove()


def products(name: str, error: str, tolerance: float, tell: Tell) -> Callable[[int, float], None]:
    """What the library calls with the products so far and the error that is left.

    >>> products("Tr(F)", "standard error", 0.02, print)(40, 0.1)
    Tr(F): 40 products, relative standard error 0.1, wanted 0.02
    """

    def report(count: int, left: float) -> None:
        tell(f"{name}: {count} products, relative {error} {left:.2g}, wanted {tolerance:g}")

    return report
