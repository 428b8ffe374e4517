"""Files that are either the old or the new one, whatever happens while they are written."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iam_lab.errors import RunError

CHUNK = 1 << 20
PART = ".part"


def write_atomic(path: Path, content: bytes) -> None:
    """Replace the file at ``path`` by ``content`` in one instant.

    The bytes go to a file beside it, are forced to the disk, and take the name; so a reader, and a run that
    is killed at any point, finds the whole old file or the whole new one.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "numbers"
    >>> write_atomic(path, b"123"); path.read_bytes()
    b'123'
    """
    part = path.with_name(f".{path.name}{PART}")
    try:
        with open(part, "wb", buffering=0) as file:
            view = memoryview(content)
            while view:
                view = view[file.write(view[:CHUNK]) :]
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_folder(path.parent)
    except OSError as error:
        remove_if_there(part)
        raise RunError(_failed(path, error)) from error
    except BaseException:
        remove_if_there(part)
        raise


def append_line(path: Path, line: str) -> None:
    """Add a line and force it to the disk; where that fails, what was there before stays as it was."""
    try:
        with open(path, "ab", buffering=0) as file:
            before = file.tell()
            try:
                content = memoryview(f"{line}\n".encode())
                while content:
                    content = content[file.write(content) :]
                os.fsync(file.fileno())
            except OSError:
                os.truncate(path, before)
                raise
    except OSError as error:
        raise RunError(_failed(path, error)) from error


def sync_folder(folder: Path) -> None:
    """Force a folder's list of names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_if_there(path: Path) -> None:
    """Delete a file that may not exist, on a disk that may not answer."""
    try:
        path.unlink()
    except OSError:
        return


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON file for people and programs."""
    write_atomic(path, (json.dumps(value, indent=2, allow_nan=True) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise RunError(f"{path} is no JSON: {error}. Was it edited or cut short?") from error
    if not isinstance(value, dict):
        raise RunError(f"{path} holds a {type(value).__name__}, expected an object {{...}}.")
    return value


def _failed(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return (
            f"{path} cannot be written: {error.strerror}. What was saved before is whole; make room, and run "
            "the same command again to continue from there."
        )
    return f"{path} cannot be written: {error.strerror or error}."
