"""Runs that differ in their seeds alone: what a cell averages and what a picture draws.

One piece serves both, so that a table and a picture of one recipe never show different runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iam_lab.report.evidence import Run


@dataclass(frozen=True)
class Alike:
    """At least one run, and others that differ from it in nothing but the seed.

    Attributes:
        runs: one a recipe and seed, in the order of the seeds.
        left_out: further runs of the same seeds, which do not count.
    """

    runs: Sequence[Run]
    left_out: Sequence[Run] = ()

    @property
    def deviations(self) -> str:
        """What these runs do otherwise than their recipe, in words; empty for the recipe itself."""
        return in_words(self.runs[0].deviations)

    @property
    def comparable(self) -> bool:
        """Whether the paper's number may stand beside them."""
        return all(run.comparable for run in self.runs)

    @property
    def order(self) -> tuple[bool, bool, int]:
        """By which groups are sorted: the recipe itself, what the paper leaves open, the rest; larger ones first."""
        return not self.comparable, bool(self.deviations), -len(self.runs)

    @property
    def twice(self) -> list[str]:
        """What was left out, in words."""
        return [
            f"seed {run.config.seed} was run twice; {run.folder} is left out, the newest counts"
            for run in self.left_out
        ]


def alike(runs: Sequence[Run]) -> list[Alike]:
    """The groups among some runs, the one to compare first; of a seed that was run twice the newest counts.

    Runs that deviate are never averaged with those that do not, be it in what the paper leaves open.
    """
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(in_words(run.deviations), []).append(run)
    return sorted((_once(same) for same in found.values()), key=lambda group: group.order)


def compared(runs: Sequence[Run], where: str) -> Alike | None:
    """The finished runs that stand for a recipe beside the paper; None where none has a number at that place."""
    groups = alike([run for run in runs if run.status == "finished" and run.value(where) is not None])
    return groups[0] if groups and groups[0].comparable else None


def in_words(deviations: Mapping[str, object]) -> str:
    """Deviations as they are written on the command line.

    >>> in_words({"training.epochs": 24, "training.precision": "bf16"})
    'training.epochs=24, training.precision=bf16'
    """
    return ", ".join(
        f"{path}={value if isinstance(value, str) else json.dumps(value)}"
        for path, value in sorted(deviations.items())
    )


def _once(runs: Sequence[Run]) -> Alike:
    counts: dict[tuple[str, int], Run] = {}
    for run in sorted(runs, key=_started, reverse=True):
        counts.setdefault((run.name, run.config.seed), run)
    kept = sorted(counts.values(), key=lambda run: (run.name, run.config.seed))
    return Alike(kept, [run for run in runs if counts[run.name, run.config.seed] is not run])


def _started(run: Run) -> str:
    """When the process last started, as ISO 8601 in UTC, which sorts as it stands."""
    return str(run.starts[-1].get("started") or "") if run.starts else ""
