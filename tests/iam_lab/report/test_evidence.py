"""Reading runs in whatever state they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.iam_lab.report.fake_runs import fake_run

from iam_lab.report.evidence import gather


def test_a_finished_run_has_last_best_and_selected(tmp_path: Path) -> None:
    fake_run(tmp_path, "digits-iam-d", 1, error=3.0)
    evidence = gather([tmp_path])
    (run,) = evidence.runs
    assert not evidence.problems
    assert (run.status, run.name, run.config.seed, run.epochs) == ("finished", "digits-iam-d", 1, 20)
    assert run.value("best.test_error") == pytest.approx(3.0)
    assert run.value("last.test_error") == pytest.approx(3.1)
    assert run.value("selected.validation_error") == pytest.approx(3.3)
    assert run.deviations == {}


def test_an_unfinished_run_keeps_what_it_has(tmp_path: Path) -> None:
    fake_run(tmp_path, "tab1-cifar10-sgd", error=4.0, finished=False, epochs=7)
    (run,) = gather([tmp_path]).runs
    assert (run.status, run.epochs) == ("unfinished", 7)
    assert run.value("last.test_error") == pytest.approx(4.1)
    assert run.selected is None


def test_half_a_line_of_metrics_does_not_count(tmp_path: Path) -> None:
    folder = fake_run(tmp_path, "digits-sgd", finished=False, epochs=3)
    with folder.metrics_file.open("a", encoding="utf-8") as file:
        file.write('{"epoch": 4, "test_er')
    evidence = gather([tmp_path])
    assert evidence.runs[0].epochs == 3
    assert not evidence.problems


def test_a_run_that_has_only_begun_is_a_run(tmp_path: Path) -> None:
    folder = fake_run(tmp_path, "digits-sgd", finished=False, epochs=3)
    folder.metrics_file.unlink()
    (run,) = gather([tmp_path]).runs
    assert (run.epochs, run.last, run.value("best.test_error")) == (0, None, None)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "{ cut sho"),
        ("config.json", "[]"),
        ("config.json", '{"format": 99}'),
        ("config.json", '{"format": 1, "recipe": "x", "config": {"optimiser": {}}}'),
        ("config.json", '{"format": 1, "recipe": "x"}'),
        ("config.json", '{"format": 1, "config": {}}'),
    ],
)
def test_an_unreadable_run_is_named_and_left_out(tmp_path: Path, file: str, content: str) -> None:
    folder = fake_run(tmp_path, "digits-sgd")
    fake_run(tmp_path, "digits-sam")
    (folder.path / file).write_text(content, encoding="utf-8")
    evidence = gather([tmp_path])
    assert [run.name for run in evidence.runs] == ["digits-sam"]
    (problem,) = evidence.problems
    assert "digits-sgd" in problem.folder
    assert problem.message


@pytest.mark.parametrize(
    ("file", "content", "status"),
    [
        ("summary.json", "{ cut sho", "unfinished"),
        ("metrics.jsonl", '{"epoch": 1}\nnonsense\n', "finished"),
        ("environment.json", "nonsense", "finished"),
    ],
)
def test_a_partly_damaged_run_keeps_the_rest(tmp_path: Path, file: str, content: str, status: str) -> None:
    folder = fake_run(tmp_path, "digits-sgd", error=3.0)
    (folder.path / file).write_text(content, encoding="utf-8")
    evidence = gather([tmp_path])
    (run,) = evidence.runs
    assert run.status == status
    assert run.value("best.test_error") == pytest.approx(3.0)
    (problem,) = evidence.problems
    assert file in problem.message


@pytest.mark.parametrize("line", ["null", "3", '"text"', "[]"])
def test_values_of_a_wrong_kind_are_no_numbers(tmp_path: Path, line: str) -> None:
    folder = fake_run(tmp_path, "digits-sgd", error=3.0)
    text = f'{{"last": {{"epoch": 2}}, "best": {{"test_error": "low"}}, "selected": {line}}}'
    folder.summary_file.write_text(text, encoding="utf-8")
    (run,) = gather([tmp_path]).runs
    assert run.value("best.test_error") is None


def test_a_folder_that_does_not_exist_is_a_problem_and_no_error(tmp_path: Path) -> None:
    evidence = gather([tmp_path / "nowhere"])
    assert not evidence.runs
    assert "nowhere" in evidence.problems[0].message


def test_a_run_given_twice_counts_once(tmp_path: Path) -> None:
    folder = fake_run(tmp_path, "digits-sgd")
    assert len(gather([tmp_path, folder.path]).runs) == 1


def test_only_what_matters_is_a_deviation(tmp_path: Path) -> None:
    fake_run(
        tmp_path,
        "tab1-cifar10-sgd",
        changed={"training.epochs": 24, "data.workers": 2, "measurement.every": 0, "training.compile": True},
    )
    (run,) = gather([tmp_path]).runs
    assert run.deviations == {"training.epochs": 24}
    assert not run.comparable


def test_what_the_paper_leaves_unstated_may_differ(tmp_path: Path) -> None:
    fake_run(tmp_path, "tab1-cifar10-sam", changed={"objective.rho": 0.1, "training.precision": "bf16"})
    (run,) = gather([tmp_path]).runs
    assert run.deviations == {"objective.rho": 0.1, "training.precision": "bf16"}
    assert run.comparable


def test_a_run_of_an_unknown_recipe_is_shown_but_not_compared(tmp_path: Path) -> None:
    folder = fake_run(tmp_path, "digits-sgd")
    text = folder.config_file.read_text(encoding="utf-8").replace('"digits-sgd"', '"of-tomorrow"')
    folder.config_file.write_text(text, encoding="utf-8")
    (run,) = gather([tmp_path]).runs
    assert (run.name, run.recipe, run.comparable) == ("of-tomorrow", None, False)
