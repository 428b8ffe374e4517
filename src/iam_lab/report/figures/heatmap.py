"""A table of numbers as colours: error over two hyper-parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iam_lab.report.figures.svg import panel


def heatmap(
    name: str,
    values: Mapping[tuple[float, float], float],
    *,
    rows: Sequence[float],
    columns: Sequence[float],
    title: str,
    row_label: str,
    column_label: str,
) -> str:
    """The picture of ``values[row, column]``; the smallest is framed, and cells without a number are crossed."""
    known = [values[row, column] for row in rows for column in columns if (row, column) in values]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    best = next((cell for cell, value in values.items() if value == low), None)
    said = f"Smallest {low:.2f} at {row_label} {best[0]:g}, {column_label} {best[1]:g}." if best else ""
    with panel(name, f"{title}: {len(known)} of {len(rows) * len(columns)} cells. {said}") as drawn:
        axes = drawn.axes
        axes.grid(visible=False)
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                value = values.get((row, column))
                if value is None:
                    axes.plot([j - 0.12, j + 0.12], [i - 0.12, i + 0.12], color="#bbbbbb", linewidth=1)
                    axes.plot([j - 0.12, j + 0.12], [i + 0.12, i - 0.12], color="#bbbbbb", linewidth=1)
                    continue
                depth = (value - low) / (high - low) if high > low else 0.0
                framed = (row, column) == best
                axes.bar(
                    j,
                    0.94,
                    width=0.94,
                    bottom=i - 0.47,
                    color=_shade(depth),
                    edgecolor="#222222" if framed else "none",
                    linewidth=1.4 if framed else 0,
                )
                axes.text(
                    j,
                    i,
                    f"{value:.2f}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if depth < 0.35 else "#222222",
                )
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(-0.5, len(rows) - 0.5)
        axes.set_xticks(range(len(columns)), [f"{column:g}" for column in columns])
        axes.set_yticks(range(len(rows)), [f"{row:g}" for row in rows])
        axes.tick_params(length=0)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.set_title(title)
        axes.set_xlabel(column_label)
        axes.set_ylabel(row_label)
    return drawn.svg


def _shade(depth: float) -> tuple[float, float, float]:
    """From deep blue (the smallest) to almost white (the largest), so that grey print keeps the order."""
    dark, light = (0.10, 0.33, 0.53), (0.93, 0.95, 0.97)
    red, green, blue = (a + (b - a) * depth for a, b in zip(dark, light, strict=True))
    return red, green, blue
