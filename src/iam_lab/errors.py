"""What can go wrong in the laboratory, as messages for people."""

from __future__ import annotations


class LabError(Exception):
    """An error that its message explains in full: ``iam`` prints the message and no traceback."""


class RecipeError(LabError, ValueError):
    """A recipe that does not exist, or a field that does not exist or has a wrong value."""


class RunError(LabError):
    """A run that cannot start, continue or be read; the message names the file."""


class Interrupted(LabError):  # noqa: N818 - nothing went wrong: the run is saved and resumable
    """Ctrl-C or SIGTERM: the step was finished and the run saved.

    Attributes:
        signal: its number.
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


def first_line(error: BaseException) -> str:
    r"""What an error of somebody else's says, without its further lines; its kind where it says nothing.

    >>> first_line(ValueError("a is wrong.\nand so on")), first_line(KeyError())
    ('a is wrong.', 'KeyError')
    """
    told = str(error).strip().splitlines()
    return told[0] if told else type(error).__name__
