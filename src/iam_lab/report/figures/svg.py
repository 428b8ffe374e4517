"""A matplotlib figure as an SVG element that can stand in an HTML page among others."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from iam_lab.lazy import require

INK, FAINT = "#222222", "#dddddd"

STYLE: dict[str, Any] = {
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.xmargin": 0.06,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "svg.fonttype": "none",  # text stays text: it can be selected, and is set in the page's own font
    "text.color": INK,
    "xtick.color": "#666666",
    "xtick.labelsize": 8,
    "ytick.color": "#666666",
    "ytick.labelsize": 8,
}


class Panel:
    """One picture in the making: ``axes`` to draw on, and ``svg`` when it is done."""

    def __init__(self, figure: Any, axes: Any) -> None:
        self.figure, self.axes = figure, axes
        self.svg = ""

    def legend(self, order: Sequence[str] = ()) -> None:
        """Names below the picture, where they hide nothing; those in ``order`` first, in that order."""
        handles, names = self.axes.get_legend_handles_labels()
        place = {name: index for index, name in enumerate(order)}
        pairs = sorted(zip(names, handles, strict=True), key=lambda pair: place.get(pair[0], len(place)))
        if pairs:
            self.figure.legend(
                [handle for _, handle in pairs],
                [name for name, _ in pairs],
                loc="outside lower center",
                ncols=min(len(pairs), 3 if max(map(len, names)) > 12 else 5),
                handlelength=1.6,
                columnspacing=1.2,
            )

    def whole_numbers(self, which: str) -> None:
        """Ticks of an ``"x"`` or ``"y"`` axis at whole numbers, for epochs."""
        ticker = require("matplotlib.ticker", extra="lab", purpose="Drawing figures")
        getattr(self.axes, f"{which}axis").set_major_locator(ticker.MaxNLocator(8, integer=True))

    def log_scale(self, which: str) -> None:
        """A logarithmic ``"x"`` or ``"y"`` axis with ticks at 1, 2 and 5, written as plain numbers."""
        ticker = require("matplotlib.ticker", extra="lab", purpose="Drawing figures")
        axis = getattr(self.axes, f"{which}axis")
        getattr(self.axes, f"set_{which}scale")("log")
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(ticker.NullLocator())


@contextmanager
def panel(name: str, alt: str, *, width: float = 4.3, height: float = 3.1) -> Iterator[Panel]:
    """Draw within; the element is in ``.svg`` afterwards.

    Args:
        name: unique in the page; identifiers inside the element start with it, so that two pictures of one
            page never refer to each other's clip paths and markers.
        alt: what a reader who does not see the picture is told.
        width: in inches, of the picture at its natural size.
        height: likewise.
    """
    matplotlib = require("matplotlib", extra="lab", purpose="Drawing figures")
    figures = require("matplotlib.figure", extra="lab", purpose="Drawing figures")
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = figures.Figure(figsize=(width, height), layout="constrained")
        drawn = Panel(figure, figure.subplots())
        yield drawn
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    drawn.svg = _inline(buffer.getvalue(), name, alt)


def _inline(document: str, name: str, alt: str) -> str:
    """The svg element of a document, scalable, named for readers, with identifiers of its own."""
    element = document[document.index("<svg") :].strip()
    prefix = re.sub(r"\W+", "-", name)
    element = re.sub(r'\bid="', f'id="{prefix}-', element)
    element = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", element)
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    opening, rest = element.split(">", 1)
    size = re.search(r'width="([\d.]+)pt"', opening)
    opening = re.sub(r'\s(width|height)="[\d.]+pt"', "", opening)
    natural = f' style="max-width: {float(size[1]) * 4 / 3:.0f}px"' if size else ""
    label = html.escape(alt, quote=True)
    return f'{opening} role="img" aria-label="{label}"{natural}>{rest}'
