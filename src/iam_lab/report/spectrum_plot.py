"""The distribution of a matrix's eigenvalues as a picture."""

from __future__ import annotations

from collections.abc import Mapping

from iam_lab.report.figures.svg import panel
from torch_iam.spectrum import SpectralDensity


def spectrum_plot(
    densities: Mapping[str, SpectralDensity], *, name: str = "spectrum", floor: float = 1e-6
) -> str:
    """Densities of eigenvalues on a logarithmic scale, as an SVG element.

    Args:
        densities: what :func:`torch_iam.spectral_density` found, by the name in the legend.
        name: unique in the page.
        floor: where the scale ends; a single eigenvalue of a large matrix has a tiny share.

    >>> import torch, torch_iam as iam
    >>> found = iam.spectral_density(torch.diag(torch.tensor([0.0, 0.0, 1.0])), probes=1)
    >>> spectrum_plot({"F": found})[:4]
    '<svg'
    """
    listed = ", ".join(densities)
    with panel(name, f"Density of the eigenvalues of {listed}, on a logarithmic scale") as drawn:
        highest = floor * 10
        for label, found in densities.items():
            curve = found.density.clamp(min=floor / 10)
            highest = max(highest, float(curve.max()))
            drawn.axes.plot(found.grid.numpy(), curve.numpy(), label=label, linewidth=1.2)
        drawn.axes.set_yscale("log")
        drawn.axes.set_ylim(floor, highest * 2)
        drawn.axes.set_xlabel("eigenvalue")
        drawn.axes.set_ylabel("density")
        if len(densities) > 1:
            drawn.legend()
    return drawn.svg
