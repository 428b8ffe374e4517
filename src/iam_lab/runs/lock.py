"""One process a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from iam_lab.errors import RunError

_held: set[Path] = set()


class BusyError(RunError):
    """Somebody else is making this run."""


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold ``folder`` alone; a second holder, here or in another process, gets an error that names the first.

    The lock is the kernel's: it ends with the process, however that ends, and children do not inherit it.
    """
    path = (folder / ".lock").resolve()
    if path in _held:  # the kernel's locks do not keep a process from itself
        raise BusyError(f"{folder} is being written by this very process.")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
            raise BusyError(
                f"{folder} is being written by {holder}. Wait for it, or choose another folder with --out."
            ) from error
        with suppress(OSError):  # a courtesy to whoever comes second; of a full disk the next file will tell
            os.truncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {os.uname().nodename}\n".encode())
        _held.add(path)
        try:
            yield
        finally:
            _held.discard(path)
    finally:
        os.close(descriptor)
