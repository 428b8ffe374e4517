"""The picture of decision boundaries in the plane."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from iam_lab.report.figures.svg import INK, panel
from iam_lab.toy.boundary import Delta, Grid

CLASSES = ("#d9a441", "#6b8fb5", "#7fa87a")
PLUS, MINUS = "#0072b2", "#d55e00"


def boundary_figure(
    name: str, network: nn.Module, points: Tensor, labels: Tensor, delta: Delta, title: str, symbol: str = "δ"
) -> str:
    """The boundaries at theta (black), theta + delta (blue) and theta − delta (orange) over the points.

    Args:
        name: unique in the page.
        network: at theta.
        points: ``[N, 2]``.
        labels: of the points.
        delta: the perturbation.
        title: above the picture.
        symbol: what the perturbation is called in the legend.
    """
    grid = Grid()
    lines = (
        (None, 1.0, INK, "-", "θ"),
        (delta, 1.0, PLUS, "-", f"θ + {symbol}"),
        (delta, -1.0, MINUS, "-", f"θ − {symbol}"),
    )
    alt = f"{title}: points of three classes in the plane and the boundaries between the network's decisions."
    with panel(name, alt, width=4.0, height=4.1) as drawn:
        axes = drawn.axes
        for label, colour in enumerate(CLASSES):
            mine = points[labels == label]
            axes.scatter(mine[:, 0], mine[:, 1], s=9, color=colour, alpha=0.75, linewidths=0, zorder=1)
        for step, sign, colour, style, text in lines:
            _contour(axes, grid, grid.margins(network, step, sign), colour, style)
            axes.plot([], [], color=colour, linestyle=style, label=text)
        axes.set_aspect("equal")
        axes.set_xlim(-grid.half, grid.half)
        axes.set_ylim(-grid.half, grid.half)
        axes.set_title(title)
        axes.set_xlabel("first coordinate")
        axes.set_ylabel("second coordinate")
        drawn.legend()
    return drawn.svg


def _contour(axes: Any, grid: Grid, margins: Tensor, colour: str, style: str) -> None:
    x = grid.axis()
    for label in range(margins.shape[-1]):
        if 0 < float((margins[..., label] > 0).double().mean()) < 1:
            axes.contour(
                x, x, margins[..., label], levels=[0.0], colors=[colour], linestyles=[style], linewidths=1.4
            )
