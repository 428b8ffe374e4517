"""Time and memory of a piece of work on a noisy machine.

Variants are timed in turn, several rounds over, and compared within a round: what slows the machine down for a
while slows all of them.
"""

from __future__ import annotations

import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

Work = Callable[[], Any]


def seconds(work: Work, device: str, calls: int) -> float:
    """Seconds a call, over ``calls`` of them; on a GPU by its own clock.

    >>> seconds(lambda: time.sleep(0.01), "cpu", calls=2) >= 0.01
    True
    """
    if device == "cpu":
        begin = time.perf_counter()
        for _ in range(calls):
            work()
        return (time.perf_counter() - begin) / calls
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(calls):
        work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000 / calls


def interleaved(works: Mapping[str, Work], device: str, calls: int, rounds: int) -> dict[str, list[float]]:
    """Seconds a call of each variant in every round, the variants in turn; two calls of each come before."""
    for work in works.values():
        for _ in range(2):
            work()
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(seconds(work, device, calls))
    return found


def ratios(times: Mapping[str, list[float]], base: str) -> dict[str, dict[str, float]]:
    """Median time, and median and range over rounds of its ratio to ``base`` in the same round.

    >>> ratios({"a": [1.0, 2.0], "b": [2.0, 4.0]}, "a")["b"]
    {'ms': 3000.0, 'ratio': 2.0, 'ratio_low': 2.0, 'ratio_high': 2.0}
    """
    rows = {}
    for name, values in times.items():
        shares = [value / reference for value, reference in zip(values, times[base], strict=True)]
        rows[name] = {
            "ms": 1000 * statistics.median(values),
            "ratio": statistics.median(shares),
            "ratio_low": min(shares),
            "ratio_high": max(shares),
        }
    return rows


def peak_bytes(work: Work, device: str) -> int:
    """The most memory that tensors take during a call, beyond what is taken before it."""
    work()
    gc.collect()
    return _peak_on_cpu(work) if device == "cpu" else _peak_on_gpu(work)


def _peak_on_gpu(work: Work) -> int:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def _peak_on_cpu(work: Work) -> int:
    """From the profiler's record of every allocation: there is no counter to ask."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    changes = sorted(
        (event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]"
    )
    level = peak = 0
    for _, change in changes:
        level += change
        peak = max(peak, level)
    return peak
