from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from iam_lab.report.statistics import combined, kendall_tau, mean


def test_mean_and_standard_error_are_numpys_with_ddof_1() -> None:
    values = [3.31, 3.28, 3.4, 3.19]
    found = mean(values)
    assert found.value == pytest.approx(np.mean(values))
    assert found.stderr == pytest.approx(np.std(values, ddof=1) / math.sqrt(4))
    assert found.n == 4


def test_one_run_has_no_standard_error() -> None:
    found = mean([4.13])
    assert (found.value, found.stderr, found.n, str(found)) == (4.13, None, 1, "4.13")


def test_equal_runs_have_one_of_zero_and_small_ones_a_bound() -> None:
    assert str(mean([4.0, 4.0, 4.0])) == "4.00 ± 0.00"
    assert str(mean([4.0, 4.001])) == "4.00 ± <0.01"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_number_that_is_none_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        mean([1.0, bad])


def test_stderr_of_a_difference() -> None:
    assert combined(0.3, 0.4) == pytest.approx(0.5)
    assert combined(None, 0.4) is None
    assert combined(0.4, None) is None


def test_kendall_tau_is_scipys_and_none_where_undefined() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=30).tolist(), rng.normal(size=30).tolist()
    assert kendall_tau(first, second) == pytest.approx(scipy.stats.kendalltau(first, second).statistic)
    assert kendall_tau([1.0], [2.0]) is None
    assert kendall_tau([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
