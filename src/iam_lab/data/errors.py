"""What is wrong with data, in one type."""

from __future__ import annotations

from iam_lab.errors import LabError


class DataError(LabError):
    """Data is missing, damaged, or not what was asked for; the message names the file, row or number."""
