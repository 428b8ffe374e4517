"""Images a second and seconds an epoch of every objective: the laboratory's trainer beside a bare loop.

    python benchmarks/train_throughput.py                                      # small networks on the CPU
    python benchmarks/train_throughput.py --device cuda --model wrn-16-8 --data cifar10
    python benchmarks/train_throughput.py --device cuda --model wrn-28-10 --data cifar10

The bare loop is ``objective.backward``, ``optimizer.step`` on the same augmented batches of the same data set
(on a GPU: the replay of one captured step). The laboratory's is ``iam_lab.train.run.Run.step``, the very loop of
a run that writes to a log: the schedule, the check of the gradient, sums of the metrics, the restoring of
BatchNorm, the look every half a second at where the training stands, for which the CPU waits. (Its clock goes
on while the bare loop has its turn, so that looks are about twice as frequent here as in a run: the overhead
is told too large, if anything.) Both loops take turns and are compared within a turn: what is told is the
median over the turns, and its quartiles. A turn is one step on a CPU and 40 on a GPU, at whose end the GPU is
waited for. Evaluation and checkpoints are timed apart, once an epoch. The time of ``iam --help`` and of the
digits recipe, end to end, come last.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness import RESULTS, write

import torch_iam as iam
from iam_lab.bench.timing import interleaved
from iam_lab.recipes.schema import Config, Data, Model, Objective, Training
from iam_lab.runs import checkpoint
from iam_lab.runs.folder import RunFolder
from iam_lab.train.numerics import numerics
from iam_lab.train.optimizers import build_optimizer
from iam_lab.train.run import Run
from iam_lab.train.stop import Stop
from iam_lab.train.supervised import Supervised
from iam_lab.train.trainer import Trainer
from iam_lab.train.watch import Lines
from torch_iam.capture import CapturedStep

OBJECTIVES = {
    "Plain": Objective("plain"),
    "SAM": Objective("sam", rho=0.05),
    "ASAM": Objective("asam", rho=0.5),
    "IAM-S": Objective("iam-s", rho=0.1),
    "IAM-D": Objective("iam-d", rho=0.1, beta=1.0),
}


def config_of(arguments: argparse.Namespace, objective: Objective) -> Config:
    """On a GPU compiled, in bfloat16, channels_last, each step one graph."""
    gpu = arguments.device != "cpu"
    return Config(
        model=Model(arguments.model),
        data=Data(arguments.data, augment="crop-flip"),
        objective=objective,
        training=Training(
            batch_size=arguments.batch,
            precision="bf16" if gpu else "fp32",
            channels_last=gpu,
            compile=gpu,
            cuda_graph=gpu,
        ),
    )


def bare(config: Config, device: torch.device) -> Callable[[], None]:
    """A step of the loop that everybody writes, on the laboratory's batches."""
    task = Supervised(config, device)
    task.model.train()
    optimizer = build_optimizer(task.model, config.optimizer, config.training)
    batches = task.batches()
    if device.type == "cuda":
        captured = CapturedStep(task.backward, task.objective, optimizer)
        return lambda: replay(captured, batches)

    def step() -> None:
        optimizer.zero_grad()
        task.backward(next(batches))
        optimizer.step()

    return step


def replay(captured: Callable[[Any], iam.Step], batches: Any) -> None:
    """A step of a graph on new data."""
    captured(next(batches))


def lab(config: Config, device: torch.device) -> Run:
    """A run between two epochs; its steps touch no file."""
    run = Run(RunFolder(Path()), config, Trainer(config, Supervised(config, device), device), Stop())
    run.watchers = [Lines()]
    return run


def row(name: str, arguments: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Both loops of one objective, and what an epoch costs beside its steps."""
    config = config_of(arguments, OBJECTIVES[name])
    run = lab(config, device)
    trainer = run.trainer
    works = {"bare": bare(config, device), "lab": run.step}
    times = interleaved(works, arguments.device, arguments.steps, arguments.rounds)
    shares = [lab / loop for lab, loop in zip(times["lab"], times["bare"], strict=True)]
    step = statistics.median(times["lab"])
    low, _, high = statistics.quantiles(shares, n=4)
    fast, _, slow = statistics.quantiles(times["lab"], n=4)
    images = trainer.images_per_step
    with tempfile.TemporaryDirectory() as folder:
        saving = timed(lambda: checkpoint.save(Path(folder) / "last.ckpt", config, trainer.state_dict()))
    return {
        "objective": name,
        "lab_ms": 1000 * step,
        "bare_ms": 1000 * statistics.median(times["bare"]),
        "overhead": statistics.median(shares) - 1,
        "overhead_low": low - 1,
        "overhead_high": high - 1,
        "images_per_second": images / step,
        "images_per_second_low": images / slow,
        "images_per_second_high": images / fast,
        "seconds_per_epoch": step * trainer.steps_per_epoch,
        "evaluation_seconds": timed(lambda: trainer.task.evaluate(trainer.task.model, lambda: None)),
        "checkpoint_seconds": saving,
    }


def timed(work: Callable[[], Any]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def command_line(*arguments: str, calls: int) -> dict[str, float]:
    """Seconds of ``iam ...`` in a new process."""
    command = [sys.executable, "-m", "iam_lab.cli", *arguments]
    times = []
    for _ in range(calls):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            times.append(time.perf_counter() - began)
    return {"seconds": statistics.median(times), "low": min(times), "high": max(times), "n": calls}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="wrn-10-1")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=None, help="steps a turn: 1 on a CPU, 40 on a GPU")
    parser.add_argument("--rounds", type=int, default=None, help="turns: 61 on a CPU, 21 on a GPU")
    parser.add_argument("--objectives", nargs="+", default=list(OBJECTIVES), choices=list(OBJECTIVES))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    on_gpu = arguments.device != "cpu"
    # A turn ends with a wait for the GPU: one of a single step would time the wait, and nothing in advance of it.
    arguments.steps = arguments.steps or (40 if on_gpu else 1)
    arguments.rounds = arguments.rounds or (21 if on_gpu else 61)
    device = torch.device(arguments.device)
    rows = []
    for name in arguments.objectives:
        with numerics(config_of(arguments, OBJECTIVES[name]).training, 0, device):
            rows.append(row(name, arguments, device))
        told = rows[-1]
        print(
            f"{name:<6} {told['images_per_second']:9.0f} images/s  {told['seconds_per_epoch']:8.2f} s/epoch  "
            f"overhead {100 * told['overhead']:+.1f} % "
            f"({100 * told['overhead_low']:+.1f} to {100 * told['overhead_high']:+.1f})"
        )
    result: dict[str, Any] = {"steps": rows}
    if arguments.device == "cpu":
        result["iam --help"] = command_line("--help", calls=10)
        result["iam train digits-iam-d"] = command_line("train", "digits-iam-d", "--device", "cpu", calls=3)
        for name in list(result)[1:]:
            print(f"{name}: {result[name]['seconds']:.2f} s")
    settings = {key: value for key, value in vars(arguments).items() if key != "out"}
    kind = arguments.device.partition(":")[0]
    path = arguments.out or RESULTS / f"train_throughput-{kind}-{arguments.model}.json"
    write(path, arguments.device, settings, result)


if __name__ == "__main__":
    main()
