"""Arithmetic on lists of tensors."""

from __future__ import annotations

import pytest
import torch

from torch_iam.directions import add_where, aligned, clear_unless

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_ok_is_cleared_or_not_added_whatever_it_holds(bad: float) -> None:
    there = [torch.ones(3, dtype=dtype) for dtype in DTYPES]
    more = [torch.full((3,), bad, dtype=dtype) for dtype in DTYPES]
    add_where(torch.tensor(False), there, more)
    assert all(torch.equal(part, torch.ones_like(part)) for part in there)
    clear_unless(torch.tensor(False), more)
    assert all(torch.equal(part, torch.zeros_like(part)) for part in more)


def test_what_is_ok_is_added_and_kept() -> None:
    there, more = ([torch.full((2,), value, dtype=dtype) for dtype in DTYPES] for value in (1.0, -3.0))
    add_where(torch.tensor(True), there, more)
    clear_unless(torch.tensor(True), there)
    assert all(torch.equal(part, torch.full_like(part, -2.0)) for part in there)
    assert all(torch.equal(part, torch.full_like(part, -3.0)) for part in more)


def test_aligned_has_the_strides_of_the_weight_and_copies_only_where_it_must() -> None:
    for shape, copied in (((4, 3, 1, 1), False), ((4, 3, 3, 3), True)):
        weight = torch.randn(shape).contiguous(memory_format=torch.channels_last)
        gradient = torch.randn(shape)
        found = aligned(gradient, weight)
        assert found.stride() == weight.stride()
        assert torch.equal(found, gradient)
        assert (found.data_ptr() != gradient.data_ptr()) == copied
    assert aligned(weight, weight) is weight
