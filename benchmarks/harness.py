"""Where benchmarks write to, and a result file that says where it is from; timing is ``iam_lab.bench.timing``."""

from __future__ import annotations

import importlib
import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from iam_lab.runs.environment import environment

# Every variant has a model of its own; past torch's default of 8 compilations it would run eagerly, in silence.
torch._dynamo.config.recompile_limit = 256

RESULTS = Path(__file__).parent / "results"
TESTS = Path(__file__).parents[1] / "tests"


def transforms() -> ModuleType:
    """``torchvision.transforms.v2``, also beside a torch that torchvision's compiled library is not made for."""
    name = "torchvision.transforms.v2"
    try:
        return importlib.import_module(name)
    except RuntimeError as missing:
        if "torchvision::" not in str(missing):
            raise
        # What the tests do about it, which is written there alone.
        _kept.update(runpy.run_path(str(TESTS / "conftest.py")))
    return importlib.import_module(name)


_kept: dict[str, Any] = {}
"""What the tests have defined: operators of a library that is collected are no more."""


def write(path: Path, device: str, settings: Mapping[str, Any], rows: Any) -> None:
    """The result with its command, machine and settings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"environment": environment(device), "settings": dict(settings), "rows": rows}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written: {path}")
