"""Ctrl-C and SIGTERM: a request to end at the next good moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from types import FrameType
from typing import Any

from iam_lab.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether the run has been asked to end, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def asked(self) -> bool:
        """Whether a signal has come."""
        return self.signal is not None

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
    """Turn the first signal into a request; the second one acts at once, as it always did.

    In a process that another one of ours has started the second one does nothing: a whole group is often
    signalled, the parent passes that on, and what comes twice was asked for once. The parent may still kill.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield stop
        return

    before: dict[int, Any] = {}  # filled below: a signal may come before that

    def request(number: int, frame: FrameType | None) -> None:
        stop.signal = number
        for each, handler in before.items():
            signal.signal(each, _nothing if parent_process() else handler)

    with heard(request) as found:
        before.update(found)
        yield stop


@contextmanager
def heard(handler: Callable[[int, FrameType | None], None]) -> Iterator[dict[int, Any]]:
    """Handle Ctrl-C and SIGTERM by ``handler``, and give the handlers that were there before.

    A signal that is ignored stays so: whoever started us (nohup, a shell's background) wants it that way.
    """
    found: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}
    before = {number: old for number, old in found.items() if old not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, handler)
    try:
        yield before
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _nothing(number: int, frame: FrameType | None) -> None:
    """A handler, since Python complains of a signal that is on its way when its handler goes."""
