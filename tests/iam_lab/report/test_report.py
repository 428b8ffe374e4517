"""The page and the markdown, as a reader gets them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.iam_lab.report.fake_runs import fake_run

from iam_lab.cli import main
from iam_lab.recipes import recipes_for
from iam_lab.recipes.paper import PLACES
from iam_lab.report import markdown, page
from iam_lab.report.content import compose
from iam_lab.report.evidence import gather
from iam_lab.report.figures.heatmap import heatmap
from iam_lab.report.figures.lines import Curve, lines
from iam_lab.report.markup import table, tag

VOID = {"meta", "br", "hr", "path", "use"}


class Outline(HTMLParser):
    """Text, identifiers, links, and whether every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name in ("href", "src", "xlink:href") and value:
                self.references.append(value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data + " "


def outline(html: str) -> Outline:
    parser = Outline()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser


@pytest.fixture(scope="module")
def rendered(mixed_runs: Path) -> str:
    return page.render(compose(gather([mixed_runs])))


def test_the_page_is_whole_and_needs_nothing_beside_itself(rendered: str) -> None:
    found = outline(rendered)
    assert all(reference.startswith("#") for reference in found.references)
    assert "url(" not in re.sub(r"url\(#", "", rendered)
    assert "<script" not in rendered


def test_identifiers_are_unique_and_links_lead_somewhere(rendered: str) -> None:
    found = outline(rendered)
    assert len(found.ids) == len(set(found.ids))
    assert {reference[1:] for reference in found.references} <= set(found.ids)


def test_every_place_of_the_paper_has_a_section(rendered: str) -> None:
    text = outline(rendered).text
    assert all(label in text and place.title in text for label, place in PLACES.items())


def test_numbers_stand_beside_the_papers(rendered: str) -> None:
    text = re.sub(r"\s+", " ", outline(rendered).text)
    assert "3.40 ± 0.15 n = 3" in text
    assert "paper 3.28 ± 0.06" in text
    assert "Δ +0.12 ± 0.16" in text
    assert "with training.epochs=24" in text
    assert "seed 0 unfinished after epoch 12" in text
    assert "3.31 ± 0.01" in text


def test_a_broken_run_is_named(rendered: str) -> None:
    assert "tab1-svhn-asam" in rendered
    assert "is no JSON" in rendered


def test_runs_that_fill_no_cell_have_their_own_section(rendered: str) -> None:
    text = outline(rendered).text
    assert "digits, mlp" in text
    assert "digits-iam-d" in text


def test_the_page_is_the_same_every_time(mixed_runs: Path, rendered: str) -> None:
    assert page.render(compose(gather([mixed_runs]))) == rendered


def test_no_runs_at_all_is_a_page_too() -> None:
    found = outline(page.render(compose(gather([]))))
    assert "There are no runs yet" in found.text
    assert "0 of the 130 cells" in re.sub(r"\s+", " ", found.text)
    assert "paper 3.28 ± 0.06" in found.text


def test_names_from_folders_are_escaped(tmp_path: Path) -> None:
    folder = fake_run(tmp_path / "<script>alert(1)</script>", "digits-sgd", epochs=3)
    text = folder.config_file.read_text(encoding="utf-8").replace('"digits-sgd"', '"<b>mine & yours</b>"')
    folder.config_file.write_text(text, encoding="utf-8")
    html = page.render(compose(gather([tmp_path])))
    outline(html)
    assert "<script>" not in html
    assert "<b>mine" not in html
    assert "&lt;b&gt;mine &amp; yours" in html


def test_the_scatter_has_taus_of_both_networks(tmp_path: Path) -> None:
    for index, recipe in enumerate(recipes_for("fig:measure_comparison")[::150]):
        measured = {"s_rho": 0.1 + index, "trace_hessian": 5.0 - index, "lambda_max_hessian": 1.0 + index % 2}
        gap = {"train_clean_error": 15.0 - index}
        fake_run(tmp_path, recipe.name, error=20.0, epochs=2, extra={**measured, **gap})
    text = outline(page.render(compose(gather([tmp_path])))).text
    assert "τ = 1.0000 from 4 runs; the paper has 0.3658." in text
    assert "τ = −1.0000 from 4 runs; the paper has −0.0439." in text


def test_a_study_is_a_group_by_itself_with_its_taus(tmp_path: Path) -> None:
    for index in range(8):
        changed = {"optimizer.lr": 0.01 * (index + 1)}
        measured = {"s_rho": 0.1 + index, "trace_hessian": 5.0 - index, "lambda_max_hessian": 1.0 + index}
        gap = {"train_clean_error": 15.0 - index}
        folder = fake_run(tmp_path, "digits-sgd", error=20.0, epochs=2, changed=changed, extra=measured | gap)
        text = folder.config_file.read_text(encoding="utf-8").replace('"digits-sgd"', '"study-digits"')
        folder.config_file.write_text(text, encoding="utf-8")
    (own,) = compose(gather([tmp_path])).own
    assert own.title == "digits, mlp: study-digits"
    assert [entry.name for entry in own.entries][:1] == ["study-digits with optimizer.lr=0.01"]
    assert len(own.entries) == 8
    assert any("τ = −1.0000 from 8 runs." in panel.caption for panel in own.panels)


def test_grids_and_curves_are_drawn(tmp_path: Path) -> None:
    fake_run(tmp_path, "heatmap-cifar10-beta1-rho0.1", error=4.5, epochs=3)
    fake_run(tmp_path, "fig6-m16-rho0.05", error=3.9, epochs=3)
    fake_run(tmp_path, "iam-wrn28-cifar100-k2-m32", error=16.0, epochs=3)
    fake_run(tmp_path, "tab1-cifar10-sgd", error=4.0, epochs=12, finished=False)
    text = outline(page.render(compose(gather([tmp_path])))).text
    assert "the least of all at β = 1, ρ = 0.1" in text
    assert "IAM-S on CIFAR-10, batches of 256" in text
    assert "K = 2: 1 run" in text
    assert "SGD: 1 run, unfinished" in text


def test_a_picture_says_in_words_what_it_shows() -> None:
    svg = lines(
        "name", [Curve("a & b", [1, 2], [3, 4], [None, None], "#000")], title="T", x_label="x", y_label="y"
    )
    assert 'role="img"' in svg
    assert 'aria-label="T: y over x. a &amp; b: 4 at 2"' in svg
    assert "<?xml" not in svg


def test_an_empty_heatmap_and_one_of_equal_values_are_drawn() -> None:
    options = {"rows": (1.0,), "columns": (1.0, 2.0), "title": "T", "row_label": "r", "column_label": "c"}
    assert "0 of 2 cells" in heatmap("empty", {}, **options)  # type: ignore[arg-type]
    equal = {(1.0, 1.0): 3.0, (1.0, 2.0): 3.0}
    assert "Smallest 3.00" in heatmap("same", equal, **options)  # type: ignore[arg-type]


def test_tags_escape_text_and_attributes() -> None:
    assert tag("a", "<&>", href='x"y') == '<a href="x&quot;y">&lt;&amp;&gt;</a>'
    assert "<td>&lt;1</td>" in table(["h", "k"], [["row", "<1"]])


def test_markdown_has_numbers_flags_and_what_was_not_run(mixed_runs: Path) -> None:
    text = markdown.render(compose(gather([mixed_runs])))
    assert "| CIFAR-10 | IAM-D | 3.40 ± 0.15 | 3 | 3.50 ± 0.15 | – | 3.28 ± 0.06 | +0.12 ± 0.16 |  |" in text
    assert "with training.epochs=24" in text
    assert "- `tab:imagnet`, ResNet-50 on ImageNet, 200 epochs: nothing of it" in text
    assert "is no JSON" in text


def test_discussion_survives_being_written_anew(mixed_runs: Path) -> None:
    content = compose(gather([mixed_runs]))
    first = markdown.render(content)
    edited = first.replace(markdown.NOTHING_YET, "SGD is worse here.\n\nWe think it is the epochs.")
    second = markdown.render(compose(gather([])), edited)
    assert "We think it is the epochs." in second
    assert markdown.render(compose(gather([])), second) == second


def test_the_command_writes_both(
    mixed_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, results = tmp_path / "new" / "page.html", tmp_path / "results.md"
    assert main(["report", str(mixed_runs), "--out", str(out), "--markdown", str(results)]) == 0
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert results.read_text(encoding="utf-8").startswith("# Results")
    shown = capsys.readouterr()
    assert "finished of" in shown.out
    assert "tab1-svhn-asam" in shown.err


def test_a_page_without_marks_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.md"
    results.write_text("# Written by hand\n", encoding="utf-8")
    assert main(["report", str(tmp_path), "--markdown", str(results)]) == 1
    assert results.read_text(encoding="utf-8") == "# Written by hand\n"
    assert "results.md" in capsys.readouterr().err


def test_simclr_is_drawn_and_what_is_missing_named(tmp_path: Path) -> None:
    for method in ("sgd", "iam-d"):
        fake_run(tmp_path, f"simclr-cifar10-{method}", error=12.0, epochs=10)
    sections = {section.label: section for section in compose(gather([tmp_path])).sections}
    shown, both = (sections[f"fig:self_supervised_{name}"].picture for name in ("eval", "total"))
    assert shown is not None
    assert both is not None
    assert [len(shown.panels), shown.done, shown.wanted] == [2, 2, 2]
    assert [both.done, both.wanted] == [2, 4]
    assert both.missing == ["SimCLR, SGD on CIFAR-100", "SimCLR, IAM-D on CIFAR-100"]
