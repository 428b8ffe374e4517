"""The pictures of the demo."""

from __future__ import annotations

from collections.abc import Callable

from iam_lab.demo.methods import METHODS
from iam_lab.demo.result import SHOWN_RHO, Result
from iam_lab.demo.study import RHO, Run
from iam_lab.report.figures.svg import panel
from iam_lab.report.statistics import mean
from iam_lab.toy.boundary_figure import boundary_figure

WIDTH = 4.6


def error_figure(result: Result) -> str:
    """Every run's test error as a dot, mean and standard error over them."""
    said = "; ".join(f"{one.look.name} {result.error(one.key)} %" for one in METHODS)
    alt = f"Test error by method, mean ± standard error. {said}"
    with panel("errors", alt, width=WIDTH + 0.6, height=3.0) as drawn:
        axes = drawn.axes
        for row, one in enumerate(reversed(METHODS)):
            errors, colour = [run.errors[-1] for run in result.of(one.key)], one.look.colour
            at = result.error(one.key)
            axes.plot(errors, [row - 0.22] * len(errors), "o", color=colour, alpha=0.35, markersize=4)
            axes.errorbar(
                at.value,
                row + 0.02,
                xerr=at.stderr,
                color=colour,
                marker=one.look.marker,
                markersize=6.5,
                capsize=3.5,
                linewidth=1.6,
            )
            axes.annotate(
                f"{at.text(1)} %",
                (at.value, row + 0.02),
                xytext=(0, 5),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=8.5,
                color=colour,
            )
        names = [one.look.name.replace(" + ", "\n+ ") for one in reversed(METHODS)]
        axes.set_yticks(range(len(METHODS)), names, fontsize=9)
        axes.set_ylim(-0.5, len(METHODS) - 0.4)
        axes.set_xlim(left=0)
        axes.tick_params(axis="y", length=0, labelcolor="#222222")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("test error (%)")
    return drawn.svg


def training_figures(result: Result) -> tuple[str, str]:
    """Test error and S_rho over training, mean and standard error over the seeds."""
    return (
        _over_training(
            result, "error", "Test error", "test error (%)", (5, 10, 20, 50), lambda run: run.errors
        ),
        _over_training(
            result,
            "inconsistency",
            f"Local inconsistency at ρ = {RHO:g}",
            "S (nats)",
            (0.005, 0.01, 0.02, 0.05, 0.1),
            lambda run: run.inconsistencies,
        ),
    )


def _over_training(
    result: Result,
    name: str,
    title: str,
    label: str,
    ticks: tuple[float, ...],
    series: Callable[[Run], list[float]],
) -> str:
    alt = f"{title} over the steps of training, one curve a method."
    with panel(name, alt, width=WIDTH, height=3.2) as drawn:
        axes = drawn.axes
        for one in METHODS:
            runs, colour = result.of(one.key), one.look.colour
            means = [mean(values) for values in zip(*map(series, runs), strict=True)]
            steps = runs[0].steps[1:]  # the untrained network would decide the scale
            values = [at.value for at in means[1:]]
            spread = [at.stderr or 0.0 for at in means[1:]]
            axes.plot(steps, values, color=colour, label=one.look.name)
            axes.fill_between(
                steps,
                [value - error for value, error in zip(values, spread, strict=True)],
                [value + error for value, error in zip(values, spread, strict=True)],
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
            axes.plot(steps[-1:], values[-1:], one.look.marker, color=colour)
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.set_yticks([tick for tick in ticks if low <= tick <= high])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.set_title(title)
        axes.set_xlabel("step")
        axes.set_ylabel(label)
        drawn.figure.legend(loc="outside lower center", ncols=3, handlelength=1.4, columnspacing=1.2)
    return drawn.svg


def boundary_figures(result: Result) -> tuple[str, str]:
    """The plane under the most harmful direction found in one step, and under noise of the same norm."""
    toy = result.toy
    return (
        boundary_figure(
            "boundary-delta",
            toy.network,
            toy.points,
            toy.labels,
            toy.delta,
            f"The direction δ that IAM finds, ‖δ‖ = {SHOWN_RHO:g}",
        ),
        boundary_figure(
            "boundary-noise",
            toy.network,
            toy.points,
            toy.labels,
            toy.noise,
            f"A random direction ε, ‖ε‖ = {SHOWN_RHO:g}",
            "ε",
        ),
    )
