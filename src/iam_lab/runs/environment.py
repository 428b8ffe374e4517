"""What a run was made with: versions, machine, commit, command."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from iam_lab.machine import facts

PACKAGES = ("torch", "numpy", "torchvision", "timm", "pyarrow", "pillow", "safetensors")


def environment(device: str | None = None) -> dict[str, Any]:
    """Everything that may explain a difference between two runs of one config, as plain values.

    >>> sorted(environment())
    ['command', 'commit', 'device', 'machine', 'started', 'versions']
    """
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": ["iam", *sys.argv[1:]]
        if Path(sys.argv[0]).stem in ("iam", "cli")
        else ["python", *sys.argv],
        "commit": commit(),
        "versions": versions(),
        "machine": facts(),
        "device": device_name(device),
    }


def versions() -> dict[str, str]:
    """Of Python, of this package, and of what decides the numbers."""
    from torch_iam.version import __version__

    found = {"python": platform.python_version(), "torch_iam": __version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def device_name(device: str | None) -> str:
    """The device in words: ``cpu``, or what the GPU calls itself."""
    if device is None or not device.startswith("cuda"):
        return device or "cpu"
    import torch

    properties = torch.cuda.get_device_properties(torch.device(device))
    return f"{properties.name}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"  # type: ignore[no-untyped-call]


def commit() -> str | None:
    """The commit of the source that runs, with ``+changes`` where tracked files differ.

    Where the source was copied without its repository, what ``IAM_COMMIT`` says; None where that is not set.
    """
    here = Path(__file__).parent
    head = _git(here, "rev-parse", "HEAD")
    if head is None:
        return os.environ.get("IAM_COMMIT")
    changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", str(here.parents[1]))
    return f"{head}+changes" if changed else head


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
