"""fig:measure_comparison: each run a point, a measure against the generalisation gap, with Kendall's tau."""

from __future__ import annotations

from collections.abc import Sequence

from iam_lab.recipes import recipes_for
from iam_lab.recipes.measure_comparison import MEASURES
from iam_lab.recipes.paper import number
from iam_lab.report.alike import Alike, alike
from iam_lab.report.evidence import Evidence, Line, Run, finite
from iam_lab.report.figures.points import Cloud, points
from iam_lab.report.pictures.picture import Panel, Picture, runs_text, told_of
from iam_lab.report.statistics import kendall_tau, unsigned

LABEL = "fig:measure_comparison"
MODELS = {"6cnn": "6CNN", "wrn-28-2": "WRN-28-2"}
NAMES = {"measure=S_rho": "S_ρ", "measure=trace_H": "Tr(H)", "measure=lambda_max_H": "λ_max(H)"}
AXES = {
    "measure=S_rho": r"$S_\rho$",
    "measure=trace_H": r"$\mathrm{Tr}(H)$",
    "measure=lambda_max_H": r"$\lambda_{\max}(H)$",
}
WITH_AUGMENTATION, WITHOUT = "#0072b2", "#c04f00"


def gap_of(line: Line | None) -> float | None:
    """Test error minus training error, both without augmentation, in percent.

    >>> gap_of({"test_error": 8.0, "train_clean_error": 1.0})
    7.0
    """
    if line is None:
        return None
    test, train = finite(line.get("test_error")), finite(line.get("train_clean_error"))
    return None if test is None or train is None else test - train


def measures_against_gap(evidence: Evidence) -> Picture:
    """Six panels, two networks by three measures."""
    panels: list[Panel] = []
    missing: list[str] = []
    done = wanted = 0
    for model, name in MODELS.items():
        recipes = [r for r in recipes_for(LABEL) if r.config.model.name == model]
        wanted += sum(recipe.seeds for recipe in recipes)
        group = _drawn([run for r in recipes for run in evidence.of(r.name)])
        if group is None:
            missing.append(f"{name}: none of {sum(recipe.seeds for recipe in recipes)} runs")
            continue
        done += len(group.runs) if group.comparable else 0
        told = "; ".join(told_of(group))
        for measure, where in MEASURES.items():
            panel = gap_panel(f"gap-{model}", name, group.runs, measure, where)
            if panel:
                paper = number(LABEL, "cifar10", "sgd", measure, "tau", model)
                said = f" These runs: {told}." if told else ""
                theirs = f"{panel.caption[:-1]}; the paper has {unsigned(paper.mean, 4)}.{said}"
                panels.append(Panel(panel.svg, theirs, panel.title))
            else:
                missing.append(f"{name}: no run has both {NAMES[measure]} and the gap")
    return Picture(panels, missing, done, wanted)


def _drawn(runs: Sequence[Run]) -> Alike | None:
    """The first group that a rank correlation can be taken of: one of two runs or more."""
    groups = alike([run for run in runs if run.status == "finished"])
    return next((group for group in groups if len(group.runs) > 1), groups[0] if groups else None)


def gap_panel(name: str, title: str, runs: Sequence[Run], measure: str, where: str) -> Panel | None:
    """The scatter of one measure; None where no run has both the measure and the gap."""
    found = [(run, run.value(where), gap_of(run.last)) for run in runs]
    known = [(run, x, y) for run, x, y in found if x is not None and y is not None]
    if not known:
        return None
    tau = kendall_tau([x for _, x, _ in known], [y for _, _, y in known])
    clouds = []
    both = len({run.config.data.augment for run, _, _ in known}) > 1
    for augment, colour, label in (
        (True, WITH_AUGMENTATION, "with augmentation" if both else ""),
        (False, WITHOUT, "without" if both else ""),
    ):
        part = [(x, y) for run, x, y in known if (run.config.data.augment != "none") == augment]
        if part:
            clouds.append(Cloud(label, [x for x, _ in part], [y for _, y in part], colour, "o"))
    svg = points(
        f"{name}-{measure}",
        clouds,
        title=title,
        x_label=AXES[measure],
        y_label="Gap, %",
        log_x=all(x > 0 for _, x, _ in known),
    )
    ours = "undefined" if tau is None else unsigned(tau, 4)
    return Panel(svg, f"τ = {ours} from {runs_text(len(known))}.", f"{title}, {NAMES[measure]}")
