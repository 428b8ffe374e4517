"""Ctrl-C and SIGTERM: a request to end at the next good moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from iam_lab.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether the run has been asked to end, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def check(self) -> None:
        """Raise where the run is to end.

        >>> stop = Stop()
        >>> stop.check()
        >>> stop.signal = signal.SIGTERM
        >>> stop.check()
        Traceback (most recent call last):
            ...
        iam_lab.errors.Interrupted: stopped by SIGTERM
        """
        if self.signal is not None:
            raise Interrupted(f"stopped by {signal.Signals(self.signal).name}", self.signal)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Turn the first signal into a request; the second one acts at once, as it always did."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield stop
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def request(number: int, frame: FrameType | None) -> None:
        stop.signal = number
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in SIGNALS:
        signal.signal(number, request)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
