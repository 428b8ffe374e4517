"""Something along the training: test error and S_rho, epoch by epoch, as a mean over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iam_lab.recipes import find_recipe, recipes_for
from iam_lab.recipes.iam_wrn28 import DRAWN, STEPS
from iam_lab.report.evidence import Evidence, Run, finite
from iam_lab.report.figures.lines import Curve, lines
from iam_lab.report.palette import SEQUENCE, dataset_name, look_of
from iam_lab.report.pictures.picture import Panel, Picture, drawn_from, runs_text
from iam_lab.report.statistics import mean

QUANTITIES = {
    "test_error": ("Test error", "Test error, %"),
    "train_loss": ("Training loss", "Training loss"),
    "s_rho": ("Local inconsistency", r"$S_\rho$"),
    "lambda_max_fisher": ("Largest eigenvalue of F", r"$\lambda_{\max}(F)$"),
}


@dataclass(frozen=True)
class Source:
    """The runs behind one curve, and how it is drawn."""

    name: str
    runs: Sequence[Run]
    colour: str
    told: str = ""
    dashed: bool = False


def training_curve(source: Source, quantity: str) -> Curve | None:
    """A quantity's mean over runs at each epoch where all of them have it; None where there is no such epoch."""
    by_epoch: dict[int, list[float]] = {}
    for run in source.runs:
        for line in run.metrics:
            value = finite(line.get(quantity))
            if value is not None:
                by_epoch.setdefault(int(line["epoch"]), []).append(value)
    epochs = sorted(epoch for epoch, found in by_epoch.items() if len(found) == len(source.runs))
    if not epochs:
        return None
    means = [mean(by_epoch[epoch]) for epoch in epochs]
    return Curve(
        source.name,
        epochs,
        [m.value for m in means],
        [m.stderr for m in means],
        source.colour,
        dashed=source.dashed,
    )


def curves_panel(
    name: str, title: str, sources: Sequence[Source], quantity: str, *, log_y: bool = False
) -> Panel | None:
    """A panel of one quantity; None where no source has it."""
    curves = [curve for source in sources if (curve := training_curve(source, quantity)) is not None]
    if not curves:
        return None
    named, label = QUANTITIES[quantity]
    drawn = {curve.name for curve in curves}
    told = "; ".join(
        f"{source.name}: {runs_text(len(source.runs))}" + (f", {source.told}" if source.told else "")
        for source in sources
        if source.name in drawn
    )
    positive = log_y and all(value > 0 for curve in curves for value in curve.y)
    svg = lines(f"{name}-{quantity}", curves, title=title, x_label="Epoch", y_label=label, log_y=positive)
    band = " The band is the standard error." if any(any(curve.spread) for curve in curves) else ""
    return Panel(svg, f"{named} along the training. {told}.{band}", title)


def inconsistency_along_training(evidence: Evidence) -> Picture:
    """fig:incon_sgd_vs_IAM."""
    panels, missing, done = [], [], 0
    for dataset in ("cifar10", "cifar100"):
        sources = []
        for method in ("sgd", "iam-d"):
            recipe = find_recipe(f"tab1-{dataset}-{method}")
            runs, told = drawn_from(evidence, recipe)
            if runs:
                sources.append(Source(look_of(method).name, runs, look_of(method).colour, told))
                done += 1
            else:
                missing.append(f"{look_of(method).name} on {dataset_name(dataset)}")
        for quantity in ("test_error", "s_rho", "lambda_max_fisher"):
            title = f"{dataset_name(dataset)}"
            panel = curves_panel(f"incon-{dataset}", title, sources, quantity, log_y=quantity != "test_error")
            if panel:
                panels.append(panel)
    return Picture(panels, missing, done, 4)


def error_with_steps_and_sub_batches(evidence: Evidence) -> Picture:
    """fig:CIFAR_m_K_IAM_D."""
    panels, missing, done, wanted = [], [], 0, 0
    label = "fig:CIFAR_m_K_IAM_D"
    for dataset in ("cifar10", "cifar100"):
        for sub_batch in DRAWN:
            cells = [("SGD", "", look_of("sgd").colour)]
            cells += [(f"K = {k}", f"K={k} m={sub_batch}", SEQUENCE[i]) for i, k in enumerate(STEPS)]
            sources = []
            for name, at, colour in cells:
                runs, told = _at(evidence, label, dataset, at)
                wanted += 1
                if runs:
                    sources.append(Source(name, runs, colour, told))
                    done += 1
                else:
                    missing.append(f"{name}, m = {sub_batch} on {dataset_name(dataset)}")
            title = f"{dataset_name(dataset)}, m = {sub_batch}"
            panel = curves_panel(f"mk-{dataset}-{sub_batch}", title, sources, "test_error", log_y=True)
            if panel:
                panels.append(panel)
    return Picture(panels, missing, done, wanted)


def _at(evidence: Evidence, label: str, dataset: str, at: str) -> tuple[Sequence[Run], str]:
    for recipe in recipes_for(label, dataset):
        if any((cell.label, cell.cell) == (label, at) for cell in recipe.cells):
            return drawn_from(evidence, recipe)
    return [], ""
