"""Options: what is no number, or not one that fits, is told by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from torch_iam.options import above_zero, count_of, zero_or_more


@pytest.mark.parametrize("given", [0.5, 1, np.float32(0.5), torch.tensor(0.5), torch.ones(1)])
def test_numbers_of_any_library(given: Any) -> None:
    assert above_zero("rho", given) == zero_or_more("rho", given) == float(given)
    assert isinstance(above_zero("rho", given), float)


@pytest.mark.parametrize("given", [float("nan"), float("inf"), -1, None, "auto", True, torch.ones(2), 1j])
def test_what_is_no_finite_number_of_its_kind(given: Any) -> None:
    for take in (above_zero, zero_or_more):
        with pytest.raises(ValueError, match="rho must be a finite number"):
            take("rho", given)


def test_zero_is_not_above_zero() -> None:
    assert zero_or_more("beta", 0) == 0.0
    with pytest.raises(ValueError, match=r"found 0; the paper's is 0\.1\."):
        above_zero("rho", 0, "; the paper's is 0.1")


@pytest.mark.parametrize("given", [0, -1, 2.5, "3", None, True])
def test_what_is_no_count(given: Any) -> None:
    assert count_of("steps", np.int64(3)) == count_of("steps", torch.tensor(3)) == 3
    with pytest.raises(ValueError, match="steps must be an integer of 1 or more"):
        count_of("steps", given)
