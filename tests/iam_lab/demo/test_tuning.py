"""Hyper-parameters are chosen by the validation images alone, and the shipped ones by the stated grid."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from iam_lab.demo import tuning
from iam_lab.demo.data import Part
from iam_lab.demo.methods import METHODS
from iam_lab.demo.study import Job, Run, Schedule
from iam_lab.demo.tuning import OPTIONS, SCHEDULES, Tuned, tune
from iam_lab.errors import LabError


def test_the_smallest_validation_error_is_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[tuple[Part, int]] = []

    def fake(job: Job) -> Run:
        seen.append((job.part, job.seed))
        wrong = 1.0 if job.schedule.learning_rate == 0.1 and job.schedule.weight_decay == 2e-3 else 2.0
        wrong += abs(job.options.get("rho", 0.0) - 0.2) + abs(job.options.get("beta", 0.0) - 1.0)
        return Run(job.key, job.seed, [job.schedule.steps], [wrong + 0.01 * (job.seed % 2)])

    monkeypatch.setattr(tuning, "run", fake)
    told: list[tuple[str, int, int]] = []
    tuned = tune(Schedule(10), 2, 1, "iam demo --tune", lambda *now: told.append(now))
    assert (tuned.learning_rate, tuned.weight_decay) == (0.1, 2e-3)
    assert tuned.options["plain"] == {}
    assert tuned.options["sam"] == {"rho": 0.2}
    assert tuned.options["iam-d"] == {"rho": 0.2, "beta": 1.0}
    assert {part for part, _ in seen} == {"validation"}
    assert min(seed for _, seed in seen) >= 100  # the demo's own seeds start at 0
    assert told[-1][1] == told[-1][2]
    path = tmp_path / "tuned.json"
    tuned.save(path)
    assert Tuned.load(path) == tuned


def test_the_shipped_file_holds_the_whole_grid() -> None:
    tuned = Tuned.load()
    tried = {(trial.key, *trial.options.values()) for trial in tuned.trials}
    grids = {"plain": SCHEDULES, **OPTIONS}
    assert tried == {(key, *point) for key, grid in grids.items() for point in product(*grid.values())}
    assert tuned.command == "iam demo --tune"
    assert tuned.machine
    for one in METHODS:
        values = tuned.chosen(one.key).options
        chosen = {"learning_rate": tuned.learning_rate, "weight_decay": tuned.weight_decay}
        assert values == (chosen if one.key == "plain" else tuned.options[one.key])


@pytest.mark.parametrize("text", ["", "{}", '{"trials": [{"colour": 1}]}'])
def test_a_broken_file_says_how_to_write_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    path.write_text(text)
    with pytest.raises(LabError, match="iam demo --tune"):
        Tuned.load(path)
