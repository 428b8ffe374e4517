"""Run folders with invented numbers, for trying the report; ``python fake_runs.py FOLDER`` makes many."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iam_lab.recipes import Recipe, find_recipe, recipes_for
from iam_lab.recipes.typed import replaced
from iam_lab.runs import RunFolder

START: dict[str, Any] = {
    "started": "2000-01-01T00:00:00+00:00",
    "command": ["iam", "train", "invented"],
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "versions": {"torch": "0"},
    "machine": {"cpu": "an invented processor"},
    "device": "cpu",
}


def fake_run(
    root: Path,
    name: str,
    seed: int = 0,
    *,
    error: float = 10.0,
    changed: Mapping[str, Any] | None = None,
    finished: bool = True,
    epochs: int | None = None,
    extra: Mapping[str, float] | None = None,
    started: str = str(START["started"]),
) -> RunFolder:
    """A run of a recipe whose least test error is ``error``, and whose last one is 0.1 above.

    Args:
        root: where the folder goes.
        name: of the recipe.
        seed: of the run.
        error: in percent.
        changed: what is changed about the recipe.
        finished: whether it came to its end.
        epochs: how many lines it has; by default as many as the recipe has epochs, at most 40.
        extra: more metrics of the last epoch.
        started: when.
    """
    config = replaced(find_recipe(name).config, "seed", seed)
    for path, value in (changed or {}).items():
        config = replaced(config, path, value)
    told = "".join(f"+{path}={value}" for path, value in (changed or {}).items())
    folder = RunFolder(root / f"{name}{told}" / f"seed{seed}")
    folder.begin(name, config, changed)
    folder.note_start(START | {"started": started}, after_epoch=0)
    total = epochs or min(config.training.epochs, 40)
    noise = random.Random(f"{name}{seed}")
    lines: list[dict[str, Any]] = []
    for epoch in range(1, total + 1):
        share = epoch / total
        value = error + 40 * math.exp(-6 * share) * (1 + 0.05 * noise.random())
        value = {total: error + 0.1, total - 1: error}.get(epoch, value)
        line: dict[str, Any] = {
            "epoch": epoch,
            "step": 100 * epoch,
            "train_loss": math.exp(-3 * share),
            "train_error": value * (1 - share),
            "lr": 0.1,
            "skipped_steps": 0,
            "test_error": value,
            "test_loss": value / 30,
        }
        if config.data.validation:
            line["validation_error"] = value + 0.3
        if config.data.name == "imagenet":
            line["test_top5_error"] = value / 3
        if config.measurement.every and (epoch % 5 == 0 or epoch == total):
            line["s_rho"] = (0.02 if config.objective.name == "iam-d" else 0.08) * (0.3 + share)
            line["lambda_max_fisher"] = 40 * line["s_rho"]
        if epoch == total:
            line |= extra or {}
        timing = {"train_seconds": 1.5, "seconds": 1.7, "images_per_second": 33000.0}
        lines.append(line | {"timing": timing})
    folder.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    if finished:
        chosen = [line for line in lines if "validation_error" in line]
        folder.finish(
            {
                "recipe": name,
                "seed": seed,
                "epochs": total,
                "last": lines[-1],
                "best": min(lines, key=lambda line: float(line["test_error"])),
                "selected": min(chosen, key=lambda line: float(line["validation_error"]), default=None),
                "timing": {"train_seconds_per_epoch": 1.5, "seconds": 1.7 * total},
            }
        )
    return folder


def fake_number(recipe: Recipe, noise: random.Random) -> float:
    """Near the paper's number for the recipe's first cell, or near 5."""
    found = recipe.cells[0].paper if recipe.cells else None
    centre = found.mean if found is not None and recipe.cells[0].metric.endswith("error") else 5.0
    return centre * (1 + 0.03 * noise.gauss(0, 1)) + 0.2


def fill_folder(root: Path) -> None:
    """A few of everything: finished, unfinished, deviating, twice, unreadable."""
    noise = random.Random(0)
    for label in ("tab:1", "tab:iam_wrn28", "fig:6", "fig:heatmap", "tab:imagnet"):
        for recipe in recipes_for(label):
            if noise.random() < 0.75:
                for seed in range(min(recipe.seeds, 3)):
                    if not (root / recipe.name / f"seed{seed}").exists():
                        fake_run(root, recipe.name, seed, error=fake_number(recipe, noise))
    for recipe in recipes_for("fig:measure_comparison")[::7]:
        size = noise.lognormvariate(0, 1)
        measured = {"s_rho": 0.05 * size, "trace_hessian": 900 * size, "lambda_max_hessian": 30 * size}
        gap = 8 + 3 * math.log(size) + noise.gauss(0, 2)
        fake_run(
            root,
            recipe.name,
            error=20.0,
            epochs=3,
            extra={**measured, "train_clean_error": 20.1 - gap},
        )
    fake_run(root, "tab1-svhn-iam-s", 5, error=3.4)
    fake_run(root, "tab1-cifar10-iam-d", 0, error=4.2, changed={"training.epochs": 24})
    fake_run(root, "tab1-cifar10-sam", 1, error=3.4, changed={"training.precision": "bf16"})
    fake_run(root, "tab1-cifar100-asam", 7, error=18.0, finished=False, epochs=12)
    for method in ("sgd", "sam", "iam-d", "iam-s"):
        for seed in range(3):
            fake_run(root, f"digits-{method}", seed, error=3 + noise.random())
    broken = fake_run(root, "tab1-cifar10-asam", 9, error=3.0)
    broken.config_file.write_text("{ cut sho", encoding="utf-8")


if __name__ == "__main__":
    fill_folder(Path(sys.argv[1]))
