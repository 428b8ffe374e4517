"""``iam bench``: what a step of each objective costs on this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from iam_lab.commands.parsing import at_least_one, parsed
from iam_lab.errors import RecipeError

Mode = Literal["eager", "compiled", "graph", "overlap"]

QUARTERS = "IAM-D m=B/4"
"""The row that cuts a batch."""


def bench(
    model: str | None = None,
    device: str = "auto",
    batch: int | None = None,
    modes: tuple[Mode, ...] = (),
    only: tuple[str, ...] = (),
    calls: int | None = None,
    rounds: int = 5,
    out: Path | None = None,
) -> int:
    """Time and weigh a training step: every objective and option beside the plain one and beside others' SAM.

    Args:
        model: by name, for 32 x 32 colour images; wrn-16-1 on a CPU, wrn-16-8 on a GPU.
        device: auto, cpu, cuda.
        batch: images; 32 on a CPU, 128 on a GPU.
        modes: eager on a CPU; on a GPU also compiled, and graph: the whole step as one CUDA graph. Overlap is
            that on two streams.
        only: names of rows, such as SAM "IAM-D lean"; Plain is always among them.
        calls: steps timed in a row; 3 on a CPU, 30 on a GPU.
        rounds: how often all variants take their turn.
        out: write the numbers to this JSON file, or into this folder, with the machine and the command.
    """
    from iam_lab.bench.step_cost import ROWS, Bench, names, step_cost
    from iam_lab.models import build_model
    from iam_lab.train.numerics import device_of, field

    for flag, value in (("--batch", batch), ("--calls", calls), ("--rounds", rounds)):
        at_least_one(flag, value)
    unknown = [name for name in only if name not in ROWS]
    if unknown:
        raise RecipeError(f"--only: there is no row {unknown[0]!r}; there are {', '.join(ROWS)}.")
    place = device_of(device).type
    on_gpu = place == "cuda"
    if batch is not None and batch % 4 and QUARTERS in names("eager", only):
        raise RecipeError(f"--batch must be a multiple of 4 for the row {QUARTERS!r}, found {batch}.")
    if model is not None:
        with field("--model"):
            build_model(model, classes=10)
    found = Bench(model or ("wrn-16-8" if on_gpu else "wrn-16-1"), place, batch or (128 if on_gpu else 32))
    count = calls or (30 if on_gpu else 3)
    rows: list[dict[str, Any]] = []
    for mode in modes or (("eager", "compiled", "graph") if on_gpu else ("eager",)):
        sys.stdout.write(f"\n{found.name}, batch {found.batch}, {mode}\n{HEADER}\n")
        for row in step_cost(found, mode, calls=count, rounds=rounds, only=only):
            sys.stdout.write(line(row) + "\n")
            rows.append(row)
    if out is not None:
        file = out / f"step_cost-{found.name}-{place}.json" if out.is_dir() else out
        _write(
            file,
            place,
            rows,
            {"model": found.name, "batch": found.batch, "calls_a_round": count, "rounds": rounds},
        )
        sys.stdout.write(f"\nwritten: {file}\n")
    return 0


HEADER = f"{'':26}{'ms':>9}{'ratio':>8}{'range':>16}{'passes':>9}{'peak':>8}"


def line(row: Mapping[str, Any]) -> str:
    """A row as it is printed."""
    span = f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
    peak = f"{row['peak_ratio']:8.2f}" if "peak_ratio" in row else ""
    return f"{row['name']:26}{row['ms']:9.2f}{row['ratio']:8.2f}{span:>16}{row['passes']:9.2f}{peak}"


def _write(out: Path, device: str, rows: list[dict[str, Any]], settings: Mapping[str, Any]) -> None:
    from iam_lab.runs.environment import environment
    from iam_lab.runs.files import write_json

    told = {
        **settings,
        "precision": f"{'bfloat16 autocast' if device == 'cuda' else 'float32'}, channels_last",
        "ratio": "median over rounds of the ratio to Plain in the same round; low and high are its range",
        "peak": "bytes of tensors beyond weights, optimizer state and batch; ratio to Plain",
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, {"environment": environment(device), "settings": told, "rows": rows})


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    return parsed(bench, "bench", arguments)
