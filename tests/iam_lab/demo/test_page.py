"""The words of the page follow from the numbers, whichever way they fall."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from iam_lab.demo.methods import METHODS
from iam_lab.demo.page import demo_page
from iam_lab.demo.result import Effort, Result, Toy
from iam_lab.demo.study import Run
from iam_lab.demo.timing import Cost
from iam_lab.demo.tuning import Tuned
from iam_lab.toy.boundary import noise
from iam_lab.toy.mixture import Mixture
from iam_lab.toy.network import Training


@pytest.fixture(scope="module")
def result() -> Result:
    mixture, training = Mixture(count=30), Training(steps=5, sizes=(2, 8, 3))
    points, labels = mixture.draw()
    network = training.run(points, labels)
    delta = noise(network, 0.5, seed=0)
    toy = Toy(mixture, training, network, delta, delta, points, labels, 0.1, 0.0)
    return Result(
        [],
        {m.key: Cost(1.0, 1.0) for m in METHODS},
        Tuned.load(),
        Effort(),
        toy,
        360,
        9.0,
        "iam demo",
        "here",
    )


def with_errors(result: Result, **last: tuple[float, ...]) -> Result:
    runs = [
        Run(one.key, seed, [0, 1, 2], [90.0, 20.0, error], [0.3, 0.2, 0.1])
        for one in METHODS
        for seed, error in enumerate(last.get(one.key.replace("-", "_"), (10.0, 11.0, 12.0)))
    ]
    return replace(result, runs=runs)


def test_a_clear_gain_is_told(result: Result) -> None:
    text = demo_page(with_errors(result, iam_d_unlabelled=(7.0, 8.1, 9.0)))
    assert "IAM-D + unlabelled came out best: 8.0 ± 0.6 % wrong, against 11.0 ± 0.6 %" in text
    assert "More than two standard errors from plain: IAM-D + unlabelled." in text
    assert "Not clearly different from it in so few runs: SAM, IAM-S, IAM-D." in text


def test_a_gain_within_the_noise_is_not_sold(result: Result) -> None:
    text = demo_page(with_errors(result, iam_d=(8.0, 12.0, 11.0)))
    assert "IAM-D came out best" in text
    assert "More than two standard errors" not in text
    assert "IAM-D, IAM-D + unlabelled" in text


def test_no_gain_at_all_is_told(result: Result) -> None:
    worse = {one.key.replace("-", "_"): (12.0, 13.0, 14.0) for one in METHODS if one.key != "plain"}
    assert "Nothing beat plain training here" in demo_page(with_errors(result, **worse))


def test_a_single_run_has_no_spread(result: Result) -> None:
    single = with_errors(
        result, **{one.key.replace("-", "_"): (float(k),) for k, one in enumerate(METHODS, 1)}
    )
    assert single.error("plain").stderr is None
    assert torch.isfinite(torch.tensor(single.gain("sam").value))
    assert "one run of each method" in demo_page(single)
