"""Images per second of augmentation in batch on the device, beside torchvision's, image by image.

    python benchmarks/augment_throughput.py                    # the CPU, one thread
    python benchmarks/augment_throughput.py --device cuda      # batches on the GPU, torchvision on one core

The same operations on random 32 x 32 colour images, from bytes to normalised floats. torchvision runs as it does
in one worker of a DataLoader, on Pillow images and on uint8 tensors, without the cost of collating the batch. Of
FixMatch's strong view it has no twin: beside it stand its RandAugment, which does twice as many operations, and a
square that is erased.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness import RESULTS, transforms, write
from torch import Tensor

from iam_lab.bench.timing import Work, interleaved
from iam_lab.data import spec_of
from iam_lab.data.augment import build_augment

v2 = transforms()
SPEC = spec_of("cifar10")
WEAK = (v2.RandomHorizontalFlip(), v2.RandomCrop(32, padding=4, padding_mode="reflect"))
TORCHVISION: dict[str, tuple[Any, ...]] = {
    "crop-flip": (v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip()),
    "weak": WEAK,
    "fixmatch-strong": (
        *WEAK,
        v2.RandAugment(2, 10),
        v2.RandomErasing(p=1.0, scale=(0.25, 0.25), ratio=(1.0, 1.0), value=127),
    ),
    "released-strong": (*WEAK, v2.RandAugment(2, 10)),
    "simclr": (
        v2.RandomResizedCrop(32, scale=(0.4, 1.0)),
        v2.RandomHorizontalFlip(),
        v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
        v2.RandomGrayscale(0.2),
    ),
}


def one_by_one(name: str, images: list[Any]) -> Work:
    """Every image alone through torchvision's transforms."""
    normalize = v2.Normalize(list(SPEC.mean), list(SPEC.std))
    transform = v2.Compose(
        [*TORCHVISION[name], v2.ToImage(), v2.ToDtype(torch.float32, scale=True), normalize]
    )

    def work() -> None:
        for image in images:
            transform(image)

    return work


def in_batch(name: str, images: Tensor) -> Work:
    """All images at once."""
    augment = build_augment(name, SPEC, channels_last=True)
    generator = torch.Generator(images.device).manual_seed(0)
    return lambda: augment(images, generator)


def variants(name: str, batch: int, single: int, device: str) -> dict[str, tuple[int, Work]]:
    """Name of a way to augment: how many images a call takes, and the call."""
    images = torch.randint(
        0, 256, (batch, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    tensors = list(images[:single])
    pictures = [v2.functional.to_pil_image(image) for image in tensors]
    return {
        f"batch on {device}": (batch, in_batch(name, images.to(device))),
        "torchvision, tensors": (single, one_by_one(name, tensors)),
        "torchvision, Pillow": (single, one_by_one(name, pictures)),
    }


def measure(name: str, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Images per second of each way: median, lowest and highest round."""
    found = variants(name, arguments.batch, arguments.single, arguments.device)
    works: dict[str, Callable[[], Any]] = {way: work for way, (_, work) in found.items()}
    times = interleaved(works, arguments.device, arguments.calls, arguments.rounds)
    rows = {}
    for way, (count, _) in found.items():
        speeds = [count / seconds for seconds in times[way]]
        rows[way] = {
            "median": round(statistics.median(speeds)),
            "low": round(min(speeds)),
            "high": round(max(speeds)),
        }
    fastest = max(rows[way]["median"] for way in rows if way.startswith("torchvision"))
    for way in rows:
        rows[way]["times_torchvision"] = round(rows[way]["median"] / fastest, 1)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=512, help="images in a batch on the device")
    parser.add_argument("--single", type=int, default=64, help="images a call of torchvision's")
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1, help="threads of a CPU operation")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = {name: measure(name, arguments) for name in TORCHVISION}
    for name, ways in rows.items():
        for way, row in ways.items():
            spread = f"{row['low']:>9,.0f} to {row['high']:>9,.0f}"
            print(
                f"{name:16} {way:22} {row['median']:>10,.0f} images/s  ({spread})  {row['times_torchvision']:>6}x"
            )
    settings = {key: value for key, value in vars(arguments).items() if key != "out"}
    settings |= {"unit": "images per second", "n": arguments.rounds}
    settings["torchvision"] = sys.modules["torchvision"].__version__
    write(
        arguments.out or RESULTS / f"augment_throughput_{arguments.device}.json",
        arguments.device,
        settings,
        rows,
    )


if __name__ == "__main__":
    main()
