"""Where the numbers come from: which runs, from when, of which commits, on which machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from iam_lab.report.evidence import Evidence, Run

LISTED = 4  # how many commits or machines are named before the rest is counted


def origin(evidence: Evidence) -> list[tuple[str, str]]:
    """What to say of all runs, by name; nothing of what no run knows.

    Only of the runs, never of now: the same runs give the same page.
    """
    runs = evidence.runs
    facts = [
        ("Begun", begun([start for run in runs for start in run.starts])),
        ("Commits", _counted(_of_each(runs, commit_of))),
        ("Machines", _counted(_of_each(runs, machine_of))),
        ("PyTorch", _counted(_of_each(runs, _torch))),
    ]
    return [(name, told) for name, told in facts if told]


def begun(starts: Sequence[Mapping[str, Any]]) -> str:
    """The first and the last day.

    >>> begun([{"started": "2000-01-02T10:00:00+00:00"}, {"started": "2000-01-01T10:00:00+00:00"}])
    '2000-01-01 to 2000-01-02'
    """
    days = sorted(day for start in starts if (day := str(start.get("started") or "")[:10]))
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else ""


def commit_of(start: Mapping[str, Any]) -> str:
    """A commit as people quote it; empty where it is not known.

    >>> commit_of({"commit": "0123456789abcdef+changes"}), commit_of({"commit": None})
    ('01234567 with changes', '')
    """
    commit = str(start.get("commit") or "")
    return commit[:8] + (" with changes" if "+" in commit else "")


def machine_of(start: Mapping[str, Any]) -> str:
    """Device, processor, cores that could be used, memory.

    >>> machine_of({"device": "cpu", "machine": {"cpu": "EPYC", "cpus": 2, "threads": 1, "memory_gib": 23.5}})
    'cpu: EPYC, 2 cores, 1 thread, 23.5 GiB'
    """
    facts = start.get("machine")
    facts = facts if isinstance(facts, dict) else {}
    device = str(start.get("device") or "")
    told = [
        str(facts.get("cpu") or ""),
        _number(facts.get("cpus"), "core"),
        _number(facts.get("threads"), "thread"),
        f"{facts['memory_gib']} GiB" if facts.get("memory_gib") else "",
    ]
    processor = ", ".join(part for part in told if part)
    return ": ".join(part for part in (device, processor) if part)


def _of_each(runs: Sequence[Run], what: Callable[[Mapping[str, Any]], str]) -> Counter[str]:
    """How many runs have each value; one that was continued elsewhere has several."""
    found: Counter[str] = Counter()
    for run in runs:
        found.update(list(dict.fromkeys(told for start in run.starts if (told := what(start)))))
    return found


def _counted(found: Counter[str]) -> str:
    """``a (12 runs), b (1 run)``; a single one needs no count."""
    if len(found) < 2:
        return "".join(found)
    named: Iterable[str] = (f"{name} ({_number(count, 'run')})" for name, count in found.most_common(LISTED))
    more = [f"{len(found) - LISTED} more"] if len(found) > LISTED else []
    return "; ".join([*named, *more])


def _torch(start: Mapping[str, Any]) -> str:
    versions = start.get("versions")
    return str(versions.get("torch") or "") if isinstance(versions, dict) else ""


def _number(count: object, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}" if count else ""
