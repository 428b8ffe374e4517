"""The benchmark of augmentations runs as it is written down, and has a row for what the recipes train with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from iam_lab.data.catalogue import spec_of
from iam_lab.recipes import all_recipes

ROOT = Path(__file__).parents[2]
QUICK = ("--batch", "8", "--single", "2", "--calls", "1", "--rounds", "1")


def test_the_pipelines_of_the_papers_recipes_are_timed_beside_torchvision(tmp_path: Path) -> None:
    """In a process of its own: where torchvision needs help to load, pytest has helped it already in this one."""
    pytest.importorskip("torchvision")
    out = tmp_path / "speeds.json"
    done = subprocess.run(
        [sys.executable, "benchmarks/augment_throughput.py", *QUICK, "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(out.read_text(encoding="utf-8"))
    used: set[str] = set()
    for recipe in all_recipes():
        config = recipe.config
        if recipe.cells and config.data.augment != "none" and not spec_of(config.data.name).streamed:
            used |= {config.data.augment} | ({config.fixmatch.strong} if config.task == "fixmatch" else set())
    assert used <= set(content["rows"])
    assert "fixmatch-strong" in used
    for ways in content["rows"].values():
        assert list(ways) == ["batch on cpu", "torchvision, tensors", "torchvision, Pillow"]
    assert content["settings"]["torchvision"]
    stored = ROOT / "benchmarks" / "results" / "augment_throughput_cpu.json"
    assert set(json.loads(stored.read_text(encoding="utf-8"))["rows"]) == set(content["rows"])
