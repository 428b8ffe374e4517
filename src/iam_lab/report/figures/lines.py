"""Curves with a band: something along training, or over a hyper-parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iam_lab.report.figures.svg import panel


@dataclass(frozen=True)
class Curve:
    """One curve.

    Attributes:
        name: in the legend; empty for none.
        x: where.
        y: how much.
        spread: standard error at each point; None where there is none.
        colour: of line and band.
        marker: of the points; empty for a plain line.
        dashed: for numbers of the paper, drawn hollow, beside ours.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float | None]
    colour: str
    marker: str = ""
    dashed: bool = False


def lines(
    name: str,
    curves: Sequence[Curve],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    x_ticks: Sequence[float] = (),
) -> str:
    """The picture of these curves."""
    said = "; ".join(f"{curve.name}: {curve.y[-1]:.4g} at {curve.x[-1]:g}" for curve in curves if curve.name)
    with panel(name, f"{title}: {y_label} over {x_label}. {said}") as drawn:
        axes = drawn.axes
        for curve in curves:
            low = [y - (error or 0.0) for y, error in zip(curve.y, curve.spread, strict=True)]
            high = [y + (error or 0.0) for y, error in zip(curve.y, curve.spread, strict=True)]
            axes.plot(
                curve.x,
                curve.y,
                color=curve.colour,
                marker=curve.marker or ("o" if len(curve.x) == 1 else None),  # one point is no line
                linestyle=(0, (3, 2)) if curve.dashed else "-",
                linewidth=1.0 if curve.dashed else None,
                markerfacecolor="white" if curve.dashed else curve.colour,
                label=curve.name,
            )
            if any(curve.spread) and not curve.marker:
                axes.fill_between(curve.x, low, high, color=curve.colour, alpha=0.15, linewidth=0)
            elif any(curve.spread):
                axes.vlines(curve.x, low, high, color=curve.colour, linewidth=1.0)
        axes.set_title(title)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        if log_x:
            drawn.log_scale("x")
        if log_y:
            drawn.log_scale("y")
        if x_ticks:
            axes.set_xticks(x_ticks, [f"{tick:g}" for tick in x_ticks])
            axes.minorticks_off()
        elif not log_x:
            drawn.whole_numbers("x")
        drawn.legend()
    return drawn.svg
