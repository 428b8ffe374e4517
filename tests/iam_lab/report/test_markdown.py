"""The page for the documentation: what a reader finds there, from results alone."""

from __future__ import annotations

from pathlib import Path

from tests.iam_lab.report.fake_runs import START, fake_run

from iam_lab.recipes import find_recipe, recipes_for
from iam_lab.recipes.paper import PLACES
from iam_lab.report import markdown
from iam_lab.report.content import compose
from iam_lab.report.evidence import gather


def test_markdown_has_numbers_flags_and_what_was_not_run(mixed_runs: Path) -> None:
    text = markdown.render(compose(gather([mixed_runs])))
    row = "| CIFAR-10 | IAM-D | 3 | 3.40 ± 0.15 | 3.50 ± 0.15 | 3.28 ± 0.06 | +0.12 ± 0.16 | 68 s | cpu |  |"
    assert row in text
    assert "with training.epochs=24" in text
    assert "- `tab:imagnet`, ResNet-50 on ImageNet, 200 epochs\n" in text
    assert "is no JSON" in text


def test_discussion_survives_being_written_anew(mixed_runs: Path) -> None:
    content = compose(gather([mixed_runs]))
    first = markdown.render(content)
    edited = first.replace(markdown.NOTHING_YET, "SGD is worse here.\n\nWe think it is the epochs.")
    second = markdown.render(compose(gather([])), edited)
    assert "We think it is the epochs." in second
    assert markdown.render(compose(gather([])), second) == second


def test_the_head_says_from_what_and_by_which_command(tmp_path: Path) -> None:
    fake_run(tmp_path, "digits-sgd", 0)
    fake_run(tmp_path, "digits-sgd", 1, started="2000-02-03T00:00:00+00:00")
    fake_run(tmp_path, "digits-sgd", 2, finished=False)
    head = markdown.render(compose(gather([tmp_path]), "iam report results --markdown docs/results.md"))
    head = head.partition("## Discussion")[0]
    for told in (
        "`iam report results --markdown docs/results.md`",
        "- Runs: 2 finished; 1 more is not at its end, and counts nowhere",
        "- Begun: 2000-01-01 to 2000-02-03",
        "- Commits: 01234567",
        "- Machines: cpu: an invented processor",
        "- PyTorch: 0",
    ):
        assert told in head


def test_several_commits_are_counted(tmp_path: Path) -> None:
    folder = fake_run(tmp_path, "digits-sgd", 0)
    folder.note_start(START | {"commit": "fedcba9876543210+changes"}, after_epoch=3)
    fake_run(tmp_path, "digits-sgd", 1)
    text = markdown.render(compose(gather([tmp_path])))
    assert "- Commits: 01234567 (2 runs); fedcba98 with changes (1 run)" in text


def test_recipes_outside_the_paper_have_a_table_of_their_own(tmp_path: Path) -> None:
    for seed, error in enumerate((10.0, 12.0)):
        fake_run(tmp_path, "few-labels-semi-iam-d", seed, error=error)
        fake_run(tmp_path, "few-labels-semi-sgd", seed, error=error + 2)
        fake_run(tmp_path, "few-labels-simclr-sgd", seed, error=error)
    fake_run(tmp_path, "few-labels-semi-sgd", 2, finished=False)
    text = markdown.render(compose(gather([tmp_path])))
    part = text.partition("## few-labels: digits, wrn-10-1, semi-supervised\n")[2].partition("\n## ")[0]
    assert part.startswith("\nNot in the paper. What SAM and IAM-D change with 40 labels")
    assert f"few-labels-semi-iam-d: {find_recipe('few-labels-semi-iam-d').note}" in part
    rows = [line for line in part.splitlines() if line.startswith("|")]
    assert rows[0] == (
        "| recipe | n | last epoch | minimum over epochs | chosen on validation | time a run | device | remarks |"
    )
    times = "68 s | cpu"
    assert rows[2:] == [
        f"| few-labels-semi-sgd | 2 | 13.10 ± 1.00 | 13.00 ± 1.00 | 13.00 ± 1.00 | {times} | 1 unfinished |",
        f"| few-labels-semi-iam-d | 2 | 11.10 ± 1.00 | 11.00 ± 1.00 | 11.00 ± 1.00 | {times} |  |",
    ]
    assert "## few-labels: digits, wrn-10-1, simclr" in text


def test_what_was_not_run_is_a_short_list(mixed_runs: Path) -> None:
    text = markdown.render(compose(gather([mixed_runs])))
    lines = text.partition("## Not run")[2].partition("## Runs")[0].strip().splitlines()[2:]
    assert len(lines) <= len(PLACES)
    assert all(line.startswith("- `") and len(line) < 250 for line in lines)
    assert "CIFAR-100; F-MNIST; SVHN" in next(line for line in lines if "`tab:1`" in line)


def test_columns_in_which_nothing_stands_are_left_out(tmp_path: Path) -> None:
    fake_run(tmp_path, "tab1-svhn-sam", 0, error=3.0)
    text = markdown.render(compose(gather([tmp_path])))
    head = next(line for line in text.splitlines() if line.startswith("| Data set"))
    assert "chosen on validation" not in head
    assert "remarks" not in head


def test_where_runs_come_from_is_a_row_a_recipe(tmp_path: Path) -> None:
    for seed in range(5):
        fake_run(tmp_path, "few-labels-semi-sgd", seed)
    rows = markdown.render(compose(gather([tmp_path]))).partition("## Runs")[2].strip().splitlines()[2:]
    (row,) = rows
    assert row.startswith("| `few-labels-semi-sgd` | 5 | 0 1 2 3 4 | 40 | 2000-01-01 | 01234567 |")


def test_a_grid_is_one_row_and_several_machines_are_told_apart(tmp_path: Path) -> None:
    for recipe in recipes_for("fig:heatmap")[:3]:
        fake_run(tmp_path, recipe.name, epochs=2)
    other = fake_run(tmp_path, "digits-sgd", epochs=2)
    other.note_start(START | {"device": "a GPU, CUDA 13.0"}, after_epoch=1)
    rows = markdown.render(compose(gather([tmp_path]))).partition("## Runs")[2].strip().splitlines()
    assert rows[0].endswith("| machine |")
    assert any(row.startswith("| `heatmap-*` | 3 | 0 | 2 |") for row in rows)
    assert rows[2].endswith("| cpu: an invented processor; a GPU, CUDA 13.0: an invented processor |")


def test_a_figure_says_in_words_what_its_panels_show(tmp_path: Path) -> None:
    for seed in range(2):
        fake_run(tmp_path, "tab1-cifar10-sgd", seed, error=4.0, epochs=10)
    text = markdown.render(compose(gather([tmp_path])))
    part = text.partition("(`fig:incon_sgd_vs_IAM`)")[2].partition("\n## ")[0]
    assert "1 of 4 points or curves have runs" in part
    assert "- CIFAR-10: Local inconsistency along the training. SGD: 2 runs." in part
