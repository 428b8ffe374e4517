"""The pictures of the toy, each by its name."""

from __future__ import annotations

from collections.abc import Sequence

from iam_lab.report.figures.lines import Curve, lines
from iam_lab.report.figures.svg import panel
from iam_lab.report.palette import SEQUENCE
from iam_lab.report.statistics import mean
from iam_lab.toy.accuracy import STEPS, Accuracy
from iam_lab.toy.boundary_figure import boundary_figure
from iam_lab.toy.experiment import LARGE, SMALL, Findings
from iam_lab.toy.result import PAPER_ERROR

THEORY, PROJECTED, POWER = "#595959", "#0072b2", "#c04f00"
SCALED = "S / (½ρ²)"


def pictures(found: Findings) -> dict[str, str]:
    """Every picture as an SVG element."""
    shown = found.boundaries
    plane = (found.network, found.points, found.labels)
    drawn = {
        f"boundary-{k}": boundary_figure(
            f"boundary-{k}", *plane, delta, f"δ₁ from start {k}, ‖δ₁‖ = {shown.rho:g}", "δ₁"
        )
        for k, delta in enumerate(shown.deltas, start=1)
    }
    drawn["boundary-noise"] = boundary_figure(
        "boundary-noise", *plane, shown.noise, f"Noise ε, ‖ε‖ = {shown.rho:g}", "ε"
    )
    drawn["cosines"] = _cosines(found)
    drawn["share"] = _share(found)
    for name, rho in (("small", SMALL), ("large", LARGE)):
        drawn[f"training-{name}"] = _training(f"training-{name}", found.training[rho], rho)
        drawn[f"steps-{name}"] = _steps(f"steps-{name}", found, rho)
    drawn["radius"] = _radius(found)
    drawn["gap"] = _gap(found)
    return drawn


def _cosines(found: Findings) -> str:
    """Histograms of |cos(delta_1, v_i)|."""
    aligned = found.alignment
    alt = "Histograms of the absolute cosine of delta_1 with the three top eigenvectors of the Fisher matrix."
    with panel("cosines", alt) as drawn:
        for i, cosines in enumerate(aligned.cosines):
            drawn.axes.hist(
                cosines.numpy(),
                bins=50,
                range=(0, 1),
                histtype="stepfilled",
                color=SEQUENCE[i],
                alpha=0.3,
                edgecolor=SEQUENCE[i],
            )
            drawn.axes.axvline(
                float(cosines.mean()), color=SEQUENCE[i], linewidth=1.2, linestyle="--", label=f"v{'₁₂₃'[i]}"
            )
        drawn.axes.set_title(f"Which eigenvector δ₁ points along, {cosines.numel():,} starts")
        drawn.axes.set_xlabel("|cos(δ₁, vᵢ)|; dashed: the mean")
        drawn.axes.set_ylabel("starts")
        drawn.legend()
    return drawn.svg


def _share(found: Findings) -> str:
    """Histogram of the squared norm of delta_1 in the top-3 eigenspace."""
    share = found.alignment.share
    alt = f"Histogram of the share of delta_1 in the top three eigenvectors, mean {float(share.mean()):.3f}."
    with panel("share", alt) as drawn:
        drawn.axes.hist(share.numpy(), bins=50, range=(0, 1), color=POWER, alpha=0.75)
        drawn.axes.axvline(float(share.mean()), color="#222222", linewidth=1.2, linestyle="--")
        drawn.axes.set_title("How much of δ₁ lies in the top three")
        drawn.axes.set_xlabel("share of ‖δ₁‖² in span(v₁, v₂, v₃); dashed: the mean")
        drawn.axes.set_ylabel("starts")
    return drawn.svg


def _training(name: str, found: Sequence[Accuracy], rho: float) -> str:
    """Theory, projected ascent and Algorithm 1 over training."""
    half = rho**2 / 2
    steps = [float(one.step) for one in found]
    estimates = [mean(one.estimates) for one in found]
    none: list[float | None] = [None] * len(found)
    return lines(
        name,
        [
            Curve("theory", steps, [one.theory / half for one in found], none, THEORY),
            Curve(
                "projected ascent",
                steps,
                [(one.projected or 0.0) / half for one in found],
                none,
                PROJECTED,
                "s",
            ),
            Curve(
                "Algorithm 1",
                steps,
                [at.value / half for at in estimates],
                [(at.stderr or 0.0) / half for at in estimates],
                POWER,
                "^",
            ),
        ],
        title=f"Over training, ρ = {rho:g}, K = {STEPS}",
        x_label="step of training",
        y_label=SCALED,
    )


def _steps(name: str, found: Findings, rho: float) -> str:
    """S after each step of both ascents."""
    climb = found.climbs[rho]
    curves = []
    for label, trace, colour in (
        ("projected ascent", climb.projected, PROJECTED),
        ("Algorithm 1", climb.power, POWER),
    ):
        means = [mean(values) for values in zip(*trace, strict=True)]
        counts = [float(k) for k in range(1, len(means) + 1)]
        curves.append(
            Curve(
                label,
                counts,
                [at.value / climb.theory for at in means],
                [(at.stderr or 0.0) / climb.theory for at in means],
                colour,
            )
        )
    return lines(
        name,
        curves,
        title=f"S against the number of steps, ρ = {rho:g}",
        x_label="K, steps of ascent",
        y_label="S / theory",
        log_x=True,
        x_ticks=(1, 2, 5, 10, 20, 50, 100, 200),
    )


def _radius(found: Findings) -> str:
    """Where the quadratic theory ends."""
    radii = [one.rho for one in found.radii]
    estimates = [mean([value / one.theory for value in one.estimates]) for one in found.radii]
    return lines(
        "radius",
        [
            Curve(
                "projected ascent",
                radii,
                [(one.projected or 0.0) / one.theory for one in found.radii],
                [None] * len(radii),
                PROJECTED,
                "s",
            ),
            Curve(
                "Algorithm 1",
                radii,
                [at.value for at in estimates],
                [at.stderr for at in estimates],
                POWER,
                "^",
            ),
        ],
        title=f"Where the quadratic theory ends, K = {STEPS}",
        x_label="ρ",
        y_label="S / (½ρ² λ_max)",
        log_x=True,
        x_ticks=radii,
    )


def _gap(found: Findings) -> str:
    """What K = 10 gives on other networks, by their eigengap."""
    alt = "Relative error of Algorithm 1 with ten steps against the ratio of the two top eigenvalues."
    with panel("gap", alt) as drawn:
        axes = drawn.axes
        for activation, colour, marker in zip(
            found.effort.activations, (POWER, PROJECTED), ("^", "s"), strict=False
        ):
            mine = [one.accuracy for one in found.spreads if one.activation == activation]
            axes.plot(
                [one.eigenvalues[1] / one.eigenvalues[0] for one in mine],
                [100 * one.error().value for one in mine],
                marker,
                color=colour,
                label=activation,
            )
        axes.axhline(100 * PAPER_ERROR, color=THEORY, linestyle="--", linewidth=1, label="the paper’s error")
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.set_yticks([tick for tick in (0.001, 0.01, 0.1, 0.23, 1, 10, 100) if low <= tick <= high])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.set_title(f"K = {STEPS} on {len(found.spreads)} other networks, ρ = {SMALL:g}")
        axes.set_xlabel("λ₂ / λ₁")
        axes.set_ylabel("mean relative error (%)")
        drawn.legend()
    return drawn.svg
