"""Each run is what its seed says, and learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from iam_lab.demo.data import digits
from iam_lab.demo.methods import METHODS
from iam_lab.demo.study import Job, Schedule, Training, run
from iam_lab.demo.timing import time_steps

OPTIONS = {
    "plain": {},
    "sam": {"rho": 0.1},
    "iam-s": {"rho": 0.1},
    "iam-d": {"rho": 0.1, "beta": 1.0},
    "iam-d-unlabelled": {"rho": 0.1, "beta": 1.0},
}


@pytest.mark.parametrize("key", [one.key for one in METHODS])
def test_a_run_learns_and_repeats(key: str) -> None:
    job = Job(key, OPTIONS[key], seed=1, schedule=Schedule(steps=30, looks=3), restarts=2)
    first, again = run(job), run(job)
    assert first == again
    assert first.steps == [0, 10, 20, 30]
    assert len(first.inconsistencies) == 4
    assert first.errors[-1] < 30 < first.errors[0]
    assert first.skipped == 0


def test_without_measurements_the_same_network_is_trained() -> None:
    job = Job("iam-d", OPTIONS["iam-d"], seed=2, schedule=Schedule(steps=20, looks=4))
    short = run(replace(job, restarts=0))
    assert short.steps == [20]
    assert short.inconsistencies == []
    assert short.errors == run(job).errors[-1:]


def test_a_run_leaves_the_random_stream_alone() -> None:
    before = torch.get_rng_state()
    run(Job("plain", {}, seed=0, schedule=Schedule(steps=2, looks=1)))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_step_that_is_not_finite_is_skipped_and_counted() -> None:
    training = Training(Job("plain", {}, seed=0, schedule=Schedule(steps=4)), digits(0, "validation"))
    with torch.no_grad():
        training.model.head.bias.fill_(torch.inf)
    before = training.model.head.weight.clone()
    training.step()
    assert training.skipped == 1
    assert torch.equal(training.model.head.weight, before)


def test_only_the_last_method_sees_images_without_a_label() -> None:
    assert [one.key for one in METHODS if one.unlabelled] == ["iam-d-unlabelled"]
    data = digits(0, "validation")
    unlabelled = Training(Job("iam-d-unlabelled", OPTIONS["iam-d"], 0, Schedule()), data)
    labelled = Training(Job("iam-d", OPTIONS["iam-d"], 0, Schedule()), data)
    unlabelled.step()
    labelled.step()
    assert not torch.equal(unlabelled.model.head.weight, labelled.model.head.weight)


def test_costs_are_told_against_plain() -> None:
    costs = time_steps(OPTIONS, Schedule(steps=50), blocks=3, steps=3)
    assert costs["plain"].ratio == 1.0
    assert set(costs) == set(OPTIONS)
    assert all(cost.milliseconds > 0 for cost in costs.values())
