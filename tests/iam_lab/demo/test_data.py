"""Nothing that is learned from is judged by, and each seed draws its own labels."""

from __future__ import annotations

import torch
from torch import Tensor

from iam_lab.demo.data import LABELS, VALIDATION, digits


def rows(images: Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


def test_the_shares_are_disjoint_and_whole() -> None:
    test, validation = digits(0, "test"), digits(0, "validation")
    parts = [test.x, test.unlabelled, test.held_x, validation.held_x]
    assert [len(part) for part in parts] == [LABELS, 1000 - LABELS, 360, VALIDATION]
    assert len(set.union(*map(rows, parts))) == 1797


def test_ten_labels_of_each_digit() -> None:
    assert torch.bincount(digits(3, "test").y).tolist() == [10] * 10


def test_a_seed_draws_its_own_labels_and_always_the_same() -> None:
    first, again, other = digits(0, "test"), digits(0, "validation"), digits(1, "test")
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, other.x)
    assert torch.equal(first.held_x, other.held_x)
