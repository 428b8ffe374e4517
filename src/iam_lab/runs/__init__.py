"""Folders of runs: what is in them, and how they survive being killed. See :mod:`iam_lab.runs.folder`."""

from typing import TYPE_CHECKING

from iam_lab.lazy import exports

if TYPE_CHECKING:
    from iam_lab.runs.folder import RunFolder as RunFolder
    from iam_lab.runs.folder import find_runs as find_runs
    from iam_lab.runs.naming import folder_of as folder_of

__getattr__, __dir__ = exports(
    __name__, {"RunFolder": ".folder", "find_runs": ".folder", "folder_of": ".naming"}
)
