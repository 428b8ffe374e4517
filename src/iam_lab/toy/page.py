"""The toy's pictures and numbers as one page."""

from __future__ import annotations

from collections.abc import Mapping

from iam_lab.page import figure, figures, page
from iam_lab.report.markup import Markup, table, tag
from iam_lab.toy.experiment import LARGE, SMALL
from iam_lab.toy.numbers import HEAD, made_by, rows, trusted, verdict
from iam_lab.toy.result import Report

CSS = ".figures { max-width: 62rem; } .figures svg { max-width: none !important; } tbody th { white-space: normal; }"

CAPTIONS = {
    "boundary-1": "Black: trained. Blue and orange: moved by one step of Algorithm 1 and its opposite.",
    "boundary-2": "The same from another start: another mixture of the same few eigenvectors.",
    "boundary-3": "And from a third.",
    "boundary-noise": "Noise of the same length lies almost wholly where the outputs do not change.",
    "cosines": "Near 1 for one vector only if it is the dominant one: a small gap spreads δ₁ over several.",
    "share": "One step already leaves the thousands of flat directions.",
    "training-small": "Where the theory holds, the three curves lie on each other. Projected ascent: its best start.",
    "training-large": "At the radius of the boundary pictures they do not: the theory is off, and ten steps of "
    "Algorithm 1 reach less than projected ascent.",
    "steps-small": "Mean and standard error over the starts; 1 is the theory. Projected ascent: the best so far.",
    "steps-large": "Off the theory Algorithm 1 climbs on: the gradient it follows is that of the true divergence.",
    "radius": "1 is the theory.",
    "gap": "Ten steps are enough where λ₂ is well below λ₁, and are not where it is close.",
}

SECTIONS = (
    (
        "What one step does to the decisions",
        ("boundary-1", "boundary-2", "boundary-3", "boundary-noise"),
    ),
    ("Where one step points", ("cosines", "share")),
    ("Algorithm 1 against theory and against a long ascent", ("training-small", "training-large")),
    ("How many steps", ("steps-small", "steps-large")),
    ("Where the theory ends, and where ten steps do", ("radius", "gap")),
)


def toy_page(report: Report, drawn: Mapping[str, str]) -> str:
    """The HTML document."""
    found = report.findings
    how, mixture = found.effort.training, found.effort.mixture
    weights = sum(weight.numel() for weight in found.network.parameters())
    layers = "-".join(map(str, how.sizes))
    captions = CAPTIONS | {"radius": f"{CAPTIONS['radius']} {trusted(report)}"}
    parts: list[Markup] = []
    for title, names in SECTIONS:
        parts.append(tag("h2", title))
        parts.append(figures(*(figure(drawn[name], captions[name]) for name in names)))
    return page(
        "IAM: the toy experiments",
        tag("h1", "A network small enough to know everything about"),
        tag(
            "p",
            f"A {layers} network ({how.activation}, {weights:,} weights, double precision) learns {mixture.count} "
            f"points of three Gaussians (standard deviation {mixture.spread:g}, centres at distance 2 from the "
            f"origin) in {how.steps} steps of gradient descent. All eigenvalues of its Fisher matrix are known, "
            "so Algorithm 1 can be compared with the truth. The paper names neither mixture nor optimizer nor "
            f"radius; these are ours, with ρ = {SMALL:g} where the quadratic theory holds and ρ = {LARGE:g} where "
            "it does not.",
        ),
        *parts,
        tag("h2", "The numbers"),
        tag("p", verdict(report)),
        table(HEAD, rows(report), label="Numbers beside the paper’s"),
        tag(
            "p",
            "± is the standard error over starts, or over networks, where nothing else is said.",
            css="caveat",
        ),
        tag("footer", made_by(report)),
        extra_css=CSS,
    )
