"""Scattered points: a measure against the gap, or accuracy against cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iam_lab.report.figures.svg import panel
from iam_lab.report.palette import LOOKS


@dataclass(frozen=True)
class Cloud:
    """Points of one kind.

    Attributes:
        name: in the legend; empty for none.
        x: where.
        y: how much.
        colour: of the points.
        marker: their shape.
        spread: standard error of each y; None where there is none, or empty.
        hollow: for numbers of the paper beside ours.
        joined: whether a thin line goes through them in order.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    marker: str = "o"
    spread: Sequence[float | None] = ()
    hollow: bool = False
    joined: bool = False


def points(
    name: str,
    clouds: Sequence[Cloud],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    x_ticks: Sequence[float] = (),
) -> str:
    """The picture of these points."""
    count = sum(len(cloud.x) for cloud in clouds)
    with panel(name, f"{title}: {count} points, {y_label} over {x_label}") as drawn:
        axes = drawn.axes
        for cloud in clouds:
            if any(cloud.spread):
                low = [y - (error or 0.0) for y, error in zip(cloud.y, cloud.spread, strict=True)]
                high = [y + (error or 0.0) for y, error in zip(cloud.y, cloud.spread, strict=True)]
                axes.vlines(cloud.x, low, high, color=cloud.colour, linewidth=1.0)
            axes.plot(
                cloud.x,
                cloud.y,
                color=cloud.colour,
                marker=cloud.marker,
                linestyle=((0, (3, 2)) if cloud.hollow else "-") if cloud.joined else "none",
                linewidth=0.8,
                markerfacecolor="white" if cloud.hollow else cloud.colour,
                markersize=5.5 if cloud.joined or len(cloud.x) < 20 else 3.5,
                label=cloud.name,
            )
        axes.set_title(title)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        if log_x:
            drawn.log_scale("x")
        if x_ticks:
            axes.set_xticks(x_ticks, [f"{tick:g}" for tick in x_ticks])
            axes.minorticks_off()
        drawn.legend([look.name for look in LOOKS.values()])
    return drawn.svg
