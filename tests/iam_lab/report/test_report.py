"""The page and the markdown, as a reader gets them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.iam_lab.report.fake_runs import fake_run

from iam_lab.recipes.paper import PLACES
from iam_lab.report import page
from iam_lab.report.content import compose
from iam_lab.report.evidence import gather
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


def test_a_study_is_a_group_by_itself_with_its_taus(tmp_path: Path) -> None:
    for index in range(8):
        changed = {"optimizer.lr": 0.01 * (index + 1)}
        measured = {"s_rho": 0.1 + index, "trace_hessian": 5.0 - index, "lambda_max_hessian": 1.0 + index}
        gap = {"train_clean_error": 15.0 - index}
        folder = fake_run(tmp_path, "digits-sgd", error=20.0, epochs=2, changed=changed, extra=measured | gap)
        text = folder.config_file.read_text(encoding="utf-8").replace('"digits-sgd"', '"study-digits"')
        folder.config_file.write_text(text, encoding="utf-8")
    (own,) = compose(gather([tmp_path])).own
    assert own.title == "study-digits: digits, mlp"
    assert [entry.name for entry in own.entries][:1] == ["study-digits with optimizer.lr=0.01"]
    assert len(own.entries) == 8
    assert any("τ = −1.0000 from 8 runs." in panel.caption for panel in own.panels)


def test_tags_escape_text_and_attributes() -> None:
    assert tag("a", "<&>", href='x"y') == '<a href="x&quot;y">&lt;&amp;&gt;</a>'
    assert "<td>&lt;1</td>" in table(["h", "k"], [["row", "<1"]])


def test_the_numbers_behind_a_table_come_with_time_and_device(rendered: str) -> None:
    text = re.sub(r"\s+", " ", outline(rendered).text)
    assert (
        "Data set Method n Minimum over epochs Last epoch Paper Ours − paper Time a run Device Remarks"
        in text
    )
    assert "CIFAR-10 IAM-D 3 3.40 ± 0.15 3.50 ± 0.15 3.28 ± 0.06 +0.12 ± 0.16 68 s cpu" in text


def test_the_page_says_where_it_comes_from(mixed_runs: Path) -> None:
    text = outline(page.render(compose(gather([mixed_runs]), "iam report results"))).text
    for told in ("iam report results", "01234567", "2000-01-01", "an invented processor"):
        assert told in text


def test_a_listing_of_seeds_run_twice_counts_each_once(tmp_path: Path) -> None:
    for part, error in (("first", 3.0), ("second", 9.0)):
        fake_run(tmp_path / part, "few-labels-semi-sgd", error=error, started=f"200{len(part)}-01-01")
    (own,) = compose(gather([tmp_path])).own
    assert own.title == "few-labels: digits, wrn-10-1, semi-supervised"
    (entry,) = own.entries
    assert len(entry.runs) == 1
    assert str(entry.over_seeds("best.test_error")) == "9.00"
    assert str(tmp_path / "first") in entry.flags[0]


def test_what_is_too_wide_shows_that_it_scrolls(rendered: str) -> None:
    css = re.sub(r"\s+", " ", rendered)
    assert re.search(r"\.scroll \{[^}]*linear-gradient[^}]*local[^}]*scroll", css)


def test_four_pictures_stand_in_pairs(rendered: str) -> None:
    opened = re.findall(r'<div class="(figures[^"]*)">((?:<figure>.*?</figure>)+)', rendered, re.DOTALL)
    assert {(css, inner.count("<figure>")) for css, inner in opened} >= {("figures pairs", 4)}
    assert not [css for css, inner in opened if css == "figures" and inner.count("<figure>") == 4]


def test_what_has_runs_stands_before_what_has_none(tmp_path: Path) -> None:
    fake_run(tmp_path, "digits-sgd", epochs=3)
    fake_run(tmp_path, "semi-cifar10-250-sgd", epochs=3)
    ids = [name for name in outline(page.render(compose(gather([tmp_path])))).ids if "matplotlib" not in name]
    places = [ids.index(name) for name in ("tab-semi-cifar", "digits--mlp", "tab-1", "runs")]
    assert places == sorted(places)
