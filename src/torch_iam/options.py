"""What a number must be that is given as an option."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from numbers import Real
from typing import Any

from torch import Tensor


def above_zero(name: str, value: Any, hint: str = "") -> float:
    """A finite number above 0 as a float, or an error that names it."""
    return _finite(name, value, "above 0", lambda number: number > 0, hint)


def zero_or_more(name: str, value: Any, hint: str = "") -> float:
    """A finite number of 0 or more as a float, or an error that names it.

    >>> zero_or_more("beta", -1)
    Traceback (most recent call last):
        ...
    ValueError: beta must be a finite number of 0 or more, found -1.
    """
    return _finite(name, value, "of 0 or more", lambda number: number >= 0, hint)


def count_of(name: str, value: Any, least: int = 1, hint: str = "") -> int:
    """An integer of any library as Python's, or an error that names it."""
    try:
        found = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = least - 1
    if found < least:
        raise ValueError(f"{name} must be an integer of {least} or more{hint}, found {value!r}.")
    return found


def _finite(name: str, value: Any, what: str, good: Callable[[float], bool], hint: str) -> float:
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    odd = isinstance(number, bool) or not isinstance(number, Real)
    if odd or not math.isfinite(number) or not good(number):
        raise ValueError(f"{name} must be a finite number {what}, found {number!r}{hint}.")
    return float(number)
