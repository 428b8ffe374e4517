"""Figures over hyper-parameters: beta and rho, rho and m, K and m."""

from __future__ import annotations

from collections.abc import Sequence

from iam_lab.recipes.fig6 import RADII as FIG6_RADII
from iam_lab.recipes.fig6 import SUB_BATCHES as FIG6_SUB_BATCHES
from iam_lab.recipes.heatmap import BETAS
from iam_lab.recipes.heatmap import RADII as HEATMAP_RADII
from iam_lab.recipes.iam_wrn28 import STEPS, SUB_BATCHES
from iam_lab.report.cells import Group, fill
from iam_lab.report.evidence import Evidence
from iam_lab.report.figures.heatmap import heatmap
from iam_lab.report.figures.lines import Curve, lines
from iam_lab.report.palette import SEQUENCE, dataset_name
from iam_lab.report.pictures.picture import Panel, Picture, runs_text


def heatmaps(evidence: Evidence) -> Picture:
    """fig:heatmap."""
    panels, missing, done = [], [], 0
    cells = [(beta, rho) for beta in BETAS for rho in HEATMAP_RADII]
    for dataset in ("cifar10", "cifar100"):
        filled: dict[tuple[float, float], float] = {}
        for beta, rho in cells:
            at = f"beta={beta:g} rho={rho:g}"
            group = fill(evidence, "fig:heatmap", dataset, "iam-d", at).ours
            if group:
                filled[beta, rho] = group.mean.value
            else:
                missing.append(f"{dataset_name(dataset)}, β = {beta:g}, ρ = {rho:g}")
        done += len(filled)
        if filled:
            svg = heatmap(
                f"heatmap-{dataset}",
                filled,
                rows=BETAS,
                columns=HEATMAP_RADII,
                title=dataset_name(dataset),
                row_label="β",
                column_label="ρ",
            )
            best = min(filled, key=lambda cell: filled[cell])
            panels.append(
                Panel(
                    svg,
                    f"Least validation error, %, in {len(filled)} of {len(cells)} cells; "
                    f"the least of all at β = {best[0]:g}, ρ = {best[1]:g} (framed).",
                    dataset_name(dataset),
                )
            )
    return Picture(panels, missing, done, 2 * len(cells))


def radius_and_sub_batch(evidence: Evidence) -> Picture:
    """fig:6."""
    curves, missing, done = [], [], 0
    for index, m in enumerate(FIG6_SUB_BATCHES):
        found: list[tuple[float, Group]] = []
        for rho in FIG6_RADII:
            group = fill(evidence, "fig:6", "cifar10", "iam-s", f"m={m} rho={rho:g}").ours
            if group:
                found.append((rho, group))
            else:
                missing.append(f"m = {m}, ρ = {rho:g}")
        done += len(found)
        if found:
            curves.append(_curve(f"m = {m}", found, SEQUENCE[index]))
    if not curves:
        return Picture((), missing, done, len(FIG6_SUB_BATCHES) * len(FIG6_RADII))
    svg = lines(
        "fig6",
        curves,
        title="IAM-S on CIFAR-10, batches of 256",
        x_label="ρ",
        y_label="Test error, %",
        log_x=True,
        x_ticks=FIG6_RADII,
    )
    return Picture(
        [Panel(svg, "Minimum over epochs; bars are standard errors.")],
        missing,
        done,
        len(FIG6_SUB_BATCHES) * len(FIG6_RADII),
    )


def steps_and_sub_batch(evidence: Evidence) -> Picture:
    """tab:iam_wrn28 as a picture: error over K, the paper's dashed and hollow."""
    panels = []
    for dataset in ("cifar10", "cifar100"):
        curves: list[Curve] = []
        runs = 0
        for index, m in enumerate(SUB_BATCHES):
            cells = {k: fill(evidence, "tab:iam_wrn28", dataset, "iam-d", f"K={k} m={m}") for k in STEPS}
            printed = [cell.paper.mean for cell in cells.values() if cell.paper]
            found = [(float(k), cell.ours) for k, cell in cells.items() if cell.ours]
            runs += sum(group.mean.n for _, group in found)
            name = "" if found else f"m = {m}"
            curves.append(Curve(name, STEPS, printed, [None] * len(STEPS), SEQUENCE[index], "o", dashed=True))
            if found:
                curves.append(_curve(f"m = {m}", found, SEQUENCE[index]))
        svg = lines(
            f"wrn28-{dataset}",
            curves,
            title=dataset_name(dataset),
            x_label="K",
            y_label="Test error, %",
            x_ticks=STEPS,
        )
        panels.append(
            Panel(svg, f"Filled: ours, {runs_text(runs)}. Hollow: the paper's.", dataset_name(dataset))
        )
    return Picture(panels, title="Over K")


def _curve(name: str, found: Sequence[tuple[float, Group]], colour: str) -> Curve:
    return Curve(
        name,
        [x for x, _ in found],
        [group.mean.value for _, group in found],
        [group.mean.stderr for _, group in found],
        colour,
        "o",
    )
