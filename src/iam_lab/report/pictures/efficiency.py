"""Accuracy or error against what the training costs, in plain epochs: IAM-D is three of them, not two."""

from __future__ import annotations

from collections.abc import Sequence

from iam_lab.recipes import find_recipe, recipes_for
from iam_lab.recipes.cost import equivalent_epochs
from iam_lab.recipes.family import METHODS
from iam_lab.recipes.paper import number, numbers
from iam_lab.recipes.tab1 import ROWS
from iam_lab.report.alike import compared
from iam_lab.report.cells import fill
from iam_lab.report.evidence import Evidence
from iam_lab.report.figures.points import Cloud, points
from iam_lab.report.palette import dataset_name, look_of
from iam_lab.report.pictures.picture import Panel, Picture, runs_text, told_of
from iam_lab.report.statistics import Mean, mean_known

COST = "Cost, in epochs of SGD"


def imagenet_efficiency(evidence: Evidence) -> Picture:
    """fig:imagenet_efficiency, at honest costs."""
    label = "fig:imagenet_efficiency"
    ours: dict[str, list[tuple[float, Mean]]] = {}
    papers: dict[str, list[tuple[float, float]]] = {}
    missing: list[str] = []
    for printed in numbers(label):
        recipe = next(
            r
            for r in recipes_for(label)
            if any((c.label, c.method, c.cell) == (label, printed.method, printed.cell) for c in r.cells)
        )
        cost = equivalent_epochs(recipe.config)
        papers.setdefault(printed.method, []).append((cost, printed.mean))
        filled = fill(evidence, label, "imagenet", printed.method, printed.cell, printed.metric)
        if filled.ours:
            ours.setdefault(printed.method, []).append((cost, filled.ours.mean))
        else:
            epochs = printed.cell.removeprefix("epochs=")
            missing.append(f"{look_of(printed.method).name}, {epochs} epochs")
    clouds = [*_paper_clouds(papers, ours), *_our_clouds(ours)]
    svg = points(
        "efficiency-imagenet",
        clouds,
        title="ResNet-50 on ImageNet",
        x_label=COST,
        y_label="Top-1 accuracy, %",
        log_x=True,
        x_ticks=(100, 200, 400, 800, 1200),  # IAM-D at 400 epochs costs 1200
    )
    caption = (
        "Filled: ours. Hollow: the paper's accuracies, moved from where the paper puts them (every method "
        "but SGD at twice its epochs) to what its steps cost: SAM 2, IAM-S 7/3, IAM-D 3 steps of SGD."
    )
    return Picture([Panel(svg, caption)], missing, len(numbers(label)) - len(missing), len(numbers(label)))


def table_1_against_cost(evidence: Evidence) -> Picture:
    """The rows of tab:1 at what they cost: one panel a data set."""
    panels: list[Panel] = []
    missing: list[str] = []
    for row in ROWS:
        ours: dict[str, list[tuple[float, Mean]]] = {}
        papers: dict[str, list[tuple[float, float]]] = {}
        runs = 0
        said: list[str] = []
        for name in (*METHODS, "sgd-400"):
            recipe = find_recipe(f"tab1-{row.dataset.replace('_', '-')}-{name}")
            cost = equivalent_epochs(recipe.config)
            method = "sgd" if name == "sgd-400" else name
            if name != "sgd":  # the paper's SGD is the better of both lengths, so it costs what both do
                papers[method] = [(cost, number("tab:1", row.dataset, method).mean)]
            group = compared(evidence.of(recipe.name), "best.test_error")
            found = mean_known(run.value("best.test_error") for run in group.runs) if group else None
            if group and found:
                ours.setdefault(method, []).append((cost, found))
                runs += found.n
                said += [f"{look_of(name).name}: {told}." for told in told_of(group)]
            else:
                missing.append(f"{look_of(name).name} on {dataset_name(row.dataset)}")
        svg = points(
            f"efficiency-{row.dataset}",
            [*_paper_clouds(papers, ours), *_our_clouds(ours)],
            title=dataset_name(row.dataset),
            x_label=COST,
            y_label="Test error, %",
            x_ticks=(200, 400, 600),
        )
        caption = f"Filled: ours, {runs_text(runs)}. Hollow: the paper's; its SGD, the better of two lengths, at 400."
        panels.append(Panel(svg, " ".join([caption, *said]), dataset_name(row.dataset)))
    title = "Against cost: a step of SAM is 2, of IAM-S 7/3, of IAM-D 3 steps of SGD"
    return Picture(panels, missing, 24 - len(missing), 24, title)


def _paper_clouds(
    found: dict[str, list[tuple[float, float]]], ours: dict[str, list[tuple[float, Mean]]]
) -> Sequence[Cloud]:
    """The paper's points; in the legend only where there are none of ours of the same colour."""
    return [
        Cloud(
            "" if method in ours else look_of(method).name,
            [x for x, _ in pairs],
            [y for _, y in pairs],
            look_of(method).colour,
            look_of(method).marker,
            hollow=True,
            joined=len(pairs) > 1,
        )
        for method, pairs in found.items()
    ]


def _our_clouds(found: dict[str, list[tuple[float, Mean]]]) -> Sequence[Cloud]:
    return [
        Cloud(
            look_of(method).name,
            [x for x, _ in pairs],
            [m.value for _, m in pairs],
            look_of(method).colour,
            look_of(method).marker,
            spread=[m.stderr for _, m in pairs],
            joined=len(pairs) > 1,
        )
        for method, pairs in found.items()
    ]
