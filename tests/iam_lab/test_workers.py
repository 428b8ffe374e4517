"""Jobs in processes give what they give here."""

from __future__ import annotations

import math

import pytest
import torch

from iam_lab.machine import cores
from iam_lab.workers import completed, one_thread


def test_processes_give_the_results_of_this_one() -> None:
    jobs = [1.0, 4.0, 9.0]
    here = dict(completed(math.sqrt, jobs, workers=1))
    there = dict(completed(math.sqrt, jobs, workers=2))
    assert here == there == {0: 1.0, 1: 2.0, 2: 3.0}


def test_an_error_of_a_job_arrives() -> None:
    with pytest.raises(ValueError, match=r"math|nonneg|domain"):
        list(completed(math.sqrt, [1.0, -1.0], workers=2))


def test_the_number_of_threads_comes_back() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_there_is_a_core() -> None:
    assert cores() >= 1
