"""The numbers in a table, ours beside the paper's, for the page and for the documentation."""

from __future__ import annotations

import statistics

from iam_lab.report.statistics import Mean, mean
from iam_lab.toy.accuracy import STEPS, Accuracy
from iam_lab.toy.experiment import LARGE, SMALL
from iam_lab.toy.result import PAPER_COSINE, PAPER_COSINE_STDERR, PAPER_ERROR, Report, summary

HEAD = ("Quantity", "Here", "Paper")
Row = tuple[str, str, str]


def rows(report: Report) -> list[Row]:
    """Quantity, our number, the paper's."""
    found = report.findings
    during = found.training[SMALL]
    trained, training = summary(during[-1:]), summary(during)
    others = summary([one.accuracy for one in found.spreads])
    last = during[-1]
    table: list[Row] = [
        (
            f"K = {STEPS}, trained network: mean relative error to ½ρ²λ_max",
            percent(last.error()),
            paper_error(),
        ),
        (f"K = {STEPS}, trained network: |cos| with v₁", cosine_text(mean(last.cosines)), paper_cosine()),
        (
            f"K = {STEPS}, trained network: missed of projected ascent’s best",
            percent(last.shortfall()),
            "0.23 %",
        ),
        ("λ₂ / λ₁ of the trained network", trained.ratio.text(3), ""),
        (
            f"K = {STEPS}, {training.networks} networks along training: relative error",
            percent(training.error),
            "“negligible gap”",
        ),
        (f"K = {STEPS}, along training: |cos| with v₁", cosine_text(training.cosine), ""),
        (
            f"K = {STEPS}, {others.networks} other networks and mixtures: relative error",
            percent(others.error),
            "",
        ),
        (f"K = {STEPS}, other networks and mixtures: |cos| with v₁", cosine_text(others.cosine), ""),
    ]
    for count, one in found.counts.items():
        if count > STEPS:
            table.append(
                (
                    f"K = {count}, trained network: relative error; |cos|",
                    f"{percent(one.error())}; {cosine_text(mean(one.cosines))}",
                    "",
                )
            )
    large = found.training[LARGE][-1]
    table += [
        (f"ρ = {LARGE:g}: projected ascent’s best / ½ρ²λ_max", f"{_ratio(large):.3f}", ""),
        (f"ρ = {LARGE:g}, K = {STEPS}: missed of projected ascent’s best", percent(large.shortfall()), ""),
    ]
    aligned = found.alignment
    count = aligned.share.numel()
    for i in range(3):
        at = f"{float(aligned.cosines[i].mean()):.3f} ± {float(aligned.cosines[i].std()):.3f}"
        table.append((f"|cos(δ₁, v{'₁₂₃'[i]})| over {count:,} starts, mean ± spread", at, ""))
    table += [
        (
            f"share of ‖δ₁‖² in the top three, mean of {count:,}",
            f"{float(aligned.share.mean()):.3f}",
            "“near 1”",
        ),
        (
            f"points that change class at ρ = {LARGE:g}: ±δ₁ from three starts; ±ε",
            ", ".join(f"{100 * share:.1f} %" for share in found.boundaries.changed_by_delta)
            + f"; {100 * found.boundaries.changed_by_noise:.1f} %",
            "",
        ),
    ]
    return table


def verdict(report: Report) -> str:
    """How near ten steps come to the paper's accuracy here, in words that follow from the numbers."""
    during = report.findings.training[SMALL]
    last, training = during[-1], summary(during)
    ratio = last.eigenvalues[1] / last.eigenvalues[0]
    middle = statistics.median(abs(value / last.theory - 1) for value in last.estimates)
    error, aligned = last.error(), mean(last.cosines)
    return (
        f"Ten steps on the trained network: the estimate is off by {percent(error)} (median "
        f"{100 * middle:.2g} %) and |cos| with v₁ is {cosine_text(aligned)}; "
        f"{_reached(error.value, aligned.value)}. Over the {training.networks} networks along training it is "
        f"{percent(training.error)} and {cosine_text(training.cosine)}; "
        f"{_reached(training.error.value, training.cosine.value)}. A step shrinks what lies along v₂ by λ₂/λ₁, "
        f"{ratio:.2f} on the trained network, against v₁: after ten, {ratio**20:.1g} of its share is left from a "
        "typical start, and far more from one that happens to have little of v₁. So the mean is that of a few "
        "starts, and more steps help where the gap is small."
    )


def _reached(error: float, cosine: float) -> str:
    good = error <= PAPER_ERROR and cosine >= PAPER_COSINE - PAPER_COSINE_STDERR
    near = error <= 2 * PAPER_ERROR and 1 - cosine <= 2 * (1 - PAPER_COSINE)
    paper = f"the paper’s {paper_error()} and {PAPER_COSINE:.4f}"
    return f"as good as {paper}" if good else f"close to {paper}" if near else f"not as good as {paper}"


def trusted(report: Report, within: float = 0.01) -> str:
    """Up to which radius the maximum found is the theory's."""
    good = [one.rho for one in report.findings.radii if abs(_ratio(one) - 1) <= within]
    if not good:
        return f"At no radius tried is the maximum within {within:.0%} of it."
    return f"Up to ρ = {max(good):g} the maximum is within {within:.0%} of it, of the radii tried."


def markdown(report: Report) -> str:
    """The table and what it was made by, for the documentation."""
    lines = [f"| {' | '.join(HEAD)} |", "| --- | --- | --- |"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows(report)]
    return "\n".join([f"{verdict(report)} {trusted(report)}", "", *lines, "", made_by(report), ""])


def made_by(report: Report) -> str:
    """Command, machine, time."""
    dense = report.findings.dense
    checked = (
        ""
        if dense is None
        else f" The factor’s spectrum was checked against the full eigendecomposition of the {dense.weights:,} × "
        f"{dense.weights:,} matrix: largest difference of an eigenvalue {dense.eigenvalue_difference:.1g} of λ_max, "
        f"|cos| of the top eigenvectors {dense.cosine:.9f}."
    )
    return f"Written by {report.command} on {report.machine}, in {report.seconds:.0f} seconds.{checked}"


def percent(at: Mean) -> str:
    """A share as a percentage with its standard error."""
    return f"{Mean(100 * at.value, None if at.stderr is None else 100 * at.stderr, at.n).text(3)} %"


def cosine_text(at: Mean) -> str:
    """Four digits, as the paper has them."""
    return at.text(4)


def paper_error() -> str:
    """As the paper prints it."""
    return f"{100 * PAPER_ERROR:.2f} %"


def paper_cosine() -> str:
    """As the paper prints it."""
    return f"{PAPER_COSINE:.4f} ± {PAPER_COSINE_STDERR:.4f}"


def _ratio(one: Accuracy) -> float:
    if one.projected is None:
        raise ValueError("Projected ascent was not run here.")
    return one.projected / one.theory
