"""Folders of runs that every test of the report reads; their numbers are invented."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.iam_lab.report.fake_runs import fake_run


@pytest.fixture(scope="session")
def mixed_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished, deviating, unfinished and broken runs, of tab:1 and of digits."""
    root = tmp_path_factory.mktemp("runs")
    for seed, error in enumerate((3.2, 3.3, 3.7)):
        fake_run(root, "tab1-cifar10-iam-d", seed, error=error)
    fake_run(root, "tab1-cifar10-iam-d", 0, error=5.0, changed={"training.epochs": 24})
    fake_run(root, "tab1-cifar10-sgd", 0, error=4.0)
    fake_run(root, "tab1-cifar10-sgd", 1, error=3.8)
    fake_run(root, "tab1-cifar10-sgd-400", 0, error=3.6)
    fake_run(root, "tab1-cifar10-sam", 0, error=3.3, changed={"training.precision": "bf16"})
    fake_run(root, "tab1-cifar100-iam-s", 0, error=17.0, finished=False, epochs=12)
    for method in ("sgd", "iam-d"):
        for seed in range(2):
            fake_run(root, f"digits-{method}", seed, error=3.0 + seed)
    broken = fake_run(root, "tab1-svhn-asam", 0, error=3.0, epochs=2)
    broken.config_file.write_text("{ cut sho", encoding="utf-8")
    return root
