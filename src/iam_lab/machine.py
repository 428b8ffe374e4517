"""The machine that a number was measured on. Imports torch only to name its version."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any


def cores() -> int:
    """How many cores this process may use; not every system says."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def facts() -> dict[str, Any]:
    """Processor, its threads, memory, and the operating system."""
    torch = sys.modules.get("torch")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": processor(),
        "cpus": cores(),
        "threads": None if torch is None else int(torch.get_num_threads()),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def machine() -> str:
    """One line: processor, cores that may be used, Python and torch.

    >>> "torch" in machine()
    True
    """
    import torch

    count = cores()
    return (
        f"{processor()}, {count} core{'s' if count > 1 else ''}, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )
