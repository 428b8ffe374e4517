"""The toy's numbers beside the paper's, as the file holds them: page and documentation say nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from iam_lab.report.statistics import Mean, mean
from iam_lab.toy.accuracy import Accuracy
from iam_lab.toy.experiment import SMALL, Findings

PAPER_ERROR, PAPER_COSINE, PAPER_COSINE_STDERR = 0.0023, 0.9960, 0.0004
"""Appendix "Accuracy of Algorithm 1 against the exact maximizer": 0.23 % and 0.9960 ± 0.0004."""


@dataclass(frozen=True)
class Summary:
    """Algorithm 1 with K = 10 over some networks.

    Attributes:
        networks: how many.
        error: |S / theory − 1|, mean over the networks of the mean over starts.
        shortfall: 1 − S / the best of projected ascent, likewise; None where that was not run.
        cosine: with the top eigenvector, likewise.
        ratio: lambda_2 / lambda_1.
    """

    networks: int
    error: Mean
    shortfall: Mean | None
    cosine: Mean
    ratio: Mean


def summary(found: Sequence[Accuracy]) -> Summary:
    """Over the networks of ``found``."""
    ascended = all(one.projected is not None for one in found)
    return Summary(
        len(found),
        mean([one.error().value for one in found]),
        mean([one.shortfall().value for one in found]) if ascended else None,
        mean([mean(one.cosines).value for one in found]),
        mean([one.eigenvalues[1] / one.eigenvalues[0] for one in found]),
    )


@dataclass(frozen=True)
class Report:
    """The findings and where they come from."""

    findings: Findings
    command: str
    machine: str
    seconds: float

    def content(self) -> dict[str, Any]:
        """Everything as plain values."""
        found = self.findings
        effort = found.effort
        during = found.training[SMALL]
        return {
            "command": self.command,
            "machine": self.machine,
            "seconds": self.seconds,
            "effort": asdict(effort),
            "weights": sum(weight.numel() for weight in found.network.parameters()),
            "paper": {
                "mean_relative_error": PAPER_ERROR,
                "cosine": PAPER_COSINE,
                "cosine_stderr": PAPER_COSINE_STDERR,
            },
            "k10": {
                "trained": asdict(summary(during[-1:])),
                "during_training": asdict(summary(during)),
                "other_networks": asdict(summary([one.accuracy for one in found.spreads])),
            },
            "by_k": {str(k): _row(one) for k, one in found.counts.items()},
            "by_rho": {f"{one.rho:g}": _row(one) for one in found.radii},
            "training": {f"{rho:g}": list(map(asdict, ones)) for rho, ones in found.training.items()},
            "spreads": [asdict(one) for one in found.spreads],
            "alignment": found.alignment.summary(),
            "boundaries": {
                "rho": found.boundaries.rho,
                "changed_by_delta": found.boundaries.changed_by_delta,
                "changed_by_noise": found.boundaries.changed_by_noise,
            },
            "climbs": {f"{rho:g}": asdict(one) for rho, one in found.climbs.items()},
            "dense": None if found.dense is None else asdict(found.dense),
        }

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(_rounded(self.content()), indent=1) + "\n")


def _row(one: Accuracy) -> dict[str, Any]:
    return {
        "theory": one.theory,
        "projected": one.projected,
        "estimate": asdict(mean(one.estimates)),
        "relative_error": asdict(one.error()),
        "shortfall": None if one.projected is None else asdict(one.shortfall()),
        "cosine": asdict(mean(one.cosines)),
    }


def _rounded(value: Any) -> Any:
    """Seven digits of every number: more would be noise, and a third of the file."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value
