"""Seconds and peak memory of the measures of generalisation, beside curvlinops, to the same accuracy.

    IAM_DATA=... python benchmarks/measures.py                               # 128 images on the CPU
    IAM_DATA=... python benchmarks/measures.py --device cuda --images 5000 --batch 500

A WRN-28-2 after a few steps of training on CIFAR-10. Eigenvalues: curvlinops' products under SciPy's ``eigsh``
with the tolerance that ours stop at; the residuals of both are computed afterwards. Traces: curvlinops has no
rule to stop by, so its products go through our Hutch++ with the same tolerance, a probe over all batches each.
The variants of a round run one after the other and are compared within it. "x passes" is the time over that of
the passes that the measure consists of: 5 forward passes for a product with F, 9 with H, 3 an ascent step.
On a CPU seconds are processor time, with one thread. The file is written after every measure: what is done stays,
whenever it is stopped.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import curvlinops
import torch
from harness import RESULTS, write
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn
from torch.nn import functional as F

import torch_iam as iam
from iam_lab.bench.timing import peak_bytes
from iam_lab.data import DataError, load
from iam_lab.models import WideResNet
from torch_iam.spectrum.operator import Operator

Pair = tuple[Tensor, Tensor]
PASSES = {"fisher": 5, "hessian": 9}  # forward passes' worth of a product


class Theirs(Operator):
    """A curvlinops operator that counts its products."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.count = inner, 0
        self.shape, self.dtype, self.device = inner.shape, inner.dtype, inner.device

    def _multiply(self, block: Tensor) -> Tensor:
        self.count += block.shape[1]
        return torch.cat([self.inner @ column.contiguous()[:, None] for column in block.T], 1)


@dataclass
class Outcome:
    """What one variant found in one round."""

    value: float
    error: float
    products: int
    passes: float
    converged: bool = True


class Bench:
    """The model, the data, and every variant of every measure."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.device, self.tolerance = arguments.device, arguments.tolerance
        self.trace_tolerance = {"fisher": arguments.fisher_trace, "hessian": arguments.hessian_trace}
        images, labels, self.data = pictures(arguments.images + 32 * arguments.training_steps)
        images, labels = images.to(self.device), labels.to(self.device)
        self.model = trained(images[arguments.images :], labels[arguments.images :], self.device)
        x, y = images[: arguments.images], labels[: arguments.images]
        self.batches: list[Pair] = list(zip(x.split(arguments.batch), y.split(arguments.batch), strict=True))
        self.piece = arguments.piece
        self.criterion = nn.CrossEntropyLoss()

    def ours(self, kind: str, piece: int | None = None) -> Operator:
        if kind == "fisher":
            return iam.FisherOperator(self.model, self.batches, batch_size=piece)
        return iam.HessianOperator(self.model, self.batches, self.criterion, batch_size=piece)

    def theirs(self, kind: str) -> Theirs:
        maker = curvlinops.GGNLinearOperator if kind == "fisher" else curvlinops.HessianLinearOperator
        return Theirs(
            maker(
                self.model,
                self.criterion,
                list(self.model.parameters()),
                self.batches,
                check_deterministic=False,
                num_data=sum(len(x) for x, _ in self.batches),
            )
        )

    def forward(self) -> Outcome:
        with torch.no_grad():
            for x, _ in self.batches:
                self.model(x)
        return Outcome(0.0, 0.0, 1, 1)

    def warm(self) -> None:
        """Every kernel once: a GPU loads each when it is first called."""
        for kind in PASSES:
            self.product(self.ours(kind), kind)
            self.product(self.theirs(kind), kind)

    def s_rho(self, restarts: int = 10) -> Outcome:
        found = iam.local_inconsistency(self.model, self.batches, rho=0.1, steps=3, restarts=restarts)
        return Outcome(found.value, found.stderr, 3 * restarts, 1 + restarts * (3 * 3 + 1))

    def eigenvalue(self, kind: str) -> Outcome:
        found = iam.top_eigenpairs(self.ours(kind), tolerance=self.tolerance)
        passes = PASSES[kind] * found.iterations
        return Outcome(
            float(found.values[0]), float(found.residuals[0]), found.iterations, passes, found.converged
        )

    def their_eigenvalue(self, kind: str) -> Outcome:
        matrix = self.theirs(kind)
        adapter = LinearOperator(matrix.shape, matrix.numpy_matvec, dtype="float32")
        (value,), vectors = eigsh(adapter, k=1, which="LA", tol=self.tolerance)
        count = matrix.count
        self.vector = torch.tensor(vectors[:, 0], device=self.device)
        return Outcome(float(value), float("nan"), count, PASSES[kind] * count)

    def trace(self, kind: str) -> Outcome:
        found = iam.trace(self.ours(kind, self.piece), tolerance=self.trace_tolerance[kind])
        return Outcome(
            found.value, found.stderr, found.matvecs, PASSES[kind] * found.matvecs, found.converged
        )

    def their_trace(self, kind: str) -> Outcome:
        found = iam.trace(self.theirs(kind), tolerance=self.trace_tolerance[kind])
        return Outcome(
            found.value, found.stderr, found.matvecs, PASSES[kind] * found.matvecs, found.converged
        )

    def product(self, matrix: Operator, kind: str) -> Outcome:
        ones = torch.ones(matrix.shape[0], device=self.device)
        matrix.matvec(ones)
        return Outcome(float(ones @ ones), 0.0, 1, PASSES[kind])

    def variants(self) -> dict[str, tuple[Callable[[], Outcome], Callable[[], Outcome] | None]]:
        """Ours and curvlinops' way to each measure."""
        pairs: dict[str, tuple[Callable[[], Outcome], Callable[[], Outcome] | None]] = {
            "S_rho, K = 3, 10 restarts": (self.s_rho, None)
        }
        for kind, symbol in (("fisher", "F"), ("hessian", "H")):
            mine, other = self.ours(kind), self.theirs(kind)
            pairs[f"product with {symbol}"] = (
                lambda kind=kind, matrix=mine: self.product(matrix, kind),
                lambda kind=kind, matrix=other: self.product(matrix, kind),
            )
            pairs[f"lambda_max({symbol})"] = (
                lambda kind=kind: self.eigenvalue(kind),
                lambda kind=kind: self.their_eigenvalue(kind),
            )
            pairs[f"Tr({symbol})"] = (
                lambda kind=kind: self.trace(kind),
                lambda kind=kind: self.their_trace(kind),
            )
        return pairs

    def true_residual(self, kind: str) -> float:
        """Of the vector that eigsh found last, relative."""
        v = self.vector / self.vector.norm()
        image = self.ours(kind) @ v
        value = v @ image
        return float((image - value * v).norm() / value.abs())


def pictures(count: int) -> tuple[Tensor, Tensor, str]:
    """CIFAR-10 where it is, else noise; and which of the two."""
    try:
        found = load("cifar10", "train")
        mean = torch.tensor([0.4914, 0.4822, 0.4465])[:, None, None]
        deviation = torch.tensor([0.2470, 0.2435, 0.2616])[:, None, None]
        return (found.images[:count] / 255 - mean) / deviation, found.labels[:count], "cifar10"
    except (DataError, FileNotFoundError) as error:
        print(f"synthetic images, since CIFAR-10 is not there: {str(error).splitlines()[0]}")
        draw = torch.Generator().manual_seed(0)
        x = torch.randn(count, 3, 32, 32, generator=draw)
        return x, torch.randint(0, 10, (count,), generator=draw), "synthetic"


def trained(images: Tensor, labels: Tensor, device: str) -> nn.Module:
    """A WRN-28-2 after a step of SGD on every 32 images."""
    torch.manual_seed(0)
    model = WideResNet(28, 2, classes=10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for x, y in zip(images.split(32), labels.split(32), strict=True):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return model.eval()


def timed(work: Callable[[], Outcome], device: str) -> tuple[float, Outcome, float | None]:
    """Seconds of the wall and MiB at the peak on a GPU; processor time on a CPU, which others may share."""
    if device == "cpu":
        begin = time.process_time()
        found = work()
        return time.process_time() - begin, found, None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, begin = torch.cuda.memory_allocated(), time.perf_counter()
    found = work()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    return seconds, found, (torch.cuda.max_memory_allocated() - before) / 2**20


def weighed(bench: Bench, name: str, works: dict[str, Callable[[], Outcome]]) -> dict[str, float]:
    """MiB at the peak on a CPU, of what is short: a profiler records every allocation."""
    if name.startswith("S_rho"):  # restarts run one after the other
        works = {"ours": lambda: bench.s_rho(restarts=1)}
    elif not name.startswith("product"):
        return {}
    return {key: peak_bytes(work, "cpu") / 2**20 for key, work in works.items()}


def row(
    name: str, times: dict[str, list[float]], found: dict[str, Outcome], peaks: dict[str, float | None]
) -> dict[str, Any]:
    """One line of the result: medians, and ratios within each round with their range."""

    def spread(values: list[float]) -> dict[str, float]:
        return {"median": statistics.median(values), "low": min(values), "high": max(values)}

    ours = found["ours"]
    result: dict[str, Any] = {
        "measure": name,
        "rounds": len(times["ours"]),
        "seconds": spread(times["ours"]),
        "value": ours.value,
        "error": ours.error,
        "converged": ours.converged,
        "products": ours.products,
        "peak_mib": peaks["ours"],
        "over_passes": spread(
            [t / (f * ours.passes) for t, f in zip(times["ours"], times["forward"], strict=True)]
        ),
    }
    if "theirs" in found:
        theirs = found["theirs"]
        result["curvlinops"] = {
            "seconds": spread(times["theirs"]),
            "value": theirs.value,
            "error": theirs.error,
            "converged": theirs.converged,
            "products": theirs.products,
            "peak_mib": peaks["theirs"],
        }
        result["times_faster"] = spread([b / a for a, b in zip(times["ours"], times["theirs"], strict=True)])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--piece", type=int, default=None, help="examples that share a probe of a trace")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="relative residual of eigenvalues")
    parser.add_argument("--fisher-trace", type=float, default=0.05, help="relative standard error of Tr(F)")
    parser.add_argument("--hessian-trace", type=float, default=0.25, help="relative standard error of Tr(H)")
    parser.add_argument("--training-steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="parts of the measures' names")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    arguments.piece = arguments.piece or (16 if arguments.device == "cpu" else 256)
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    bench = Bench(arguments)
    bench.forward()
    if arguments.device != "cpu":
        bench.warm()
    rows: list[dict[str, Any]] = []
    where = arguments.out or RESULTS / f"measures-{arguments.device}.json"
    settings = {"model": "WRN-28-2", "data": bench.data, **vars(arguments), "out": where.name}
    settings["curvlinops"] = version("curvlinops-for-pytorch")
    settings["clock"] = "processor time" if arguments.device == "cpu" else "wall"
    for name, (ours, theirs) in bench.variants().items():
        if arguments.only and not any(part in name for part in arguments.only):
            continue
        works = {"forward": bench.forward, "ours": ours, **({} if theirs is None else {"theirs": theirs})}
        times: dict[str, list[float]] = {key: [] for key in works}
        found: dict[str, Outcome] = {}
        peaks: dict[str, float | None] = {}
        for number in range(arguments.rounds):
            for key, work in works.items():
                seconds, found[key], peaks[key] = timed(work, arguments.device)
                times[key].append(seconds)
                print(f"  {name}, round {number + 1}: {key} {seconds:.2f} s", flush=True)
        if name.startswith("lambda_max"):
            kind = "fisher" if "F" in name else "hessian"
            found["theirs"].error = bench.true_residual(kind) * abs(found["theirs"].value)
        if arguments.device == "cpu":
            peaks |= weighed(bench, name, works)
        rows.append(row(name, times, found, peaks))
        print(line(rows[-1]), flush=True)
        write(where, arguments.device, settings, rows)


def line(result: dict[str, Any]) -> str:
    """A result in a line."""
    text = (
        f"{result['measure']:26s} {result['seconds']['median']:7.2f} s  {result['products']:3d} products  "
        f"{result['over_passes']['median']:.2f} x passes  {result['value']:.4g} (error {result['error']:.2g})"
    )
    if "times_faster" in result:
        faster, theirs = result["times_faster"], result["curvlinops"]
        text += (
            f"   curvlinops {theirs['seconds']['median']:.2f} s, {theirs['products']} products, error "
            f"{theirs['error']:.2g}: {faster['median']:.2f} x faster [{faster['low']:.2f}, {faster['high']:.2f}]"
        )
    if result["peak_mib"] is not None:
        text += f"   peak {result['peak_mib']:.0f} MiB"
        if "times_faster" in result:
            text += f", curvlinops {result['curvlinops']['peak_mib']:.0f} MiB"
    return text


if __name__ == "__main__":
    main()
