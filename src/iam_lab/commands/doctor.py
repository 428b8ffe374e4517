"""``iam doctor``: is everything there?"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from iam_lab.commands.parsing import parsed

EXTRAS = {
    "lab": ("tyro", "rich", "pyarrow", "PIL", "huggingface_hub", "safetensors", "scipy", "matplotlib"),
    "demo": ("sklearn",),
    "vision": ("torchvision", "timm"),
    "track": ("tensorboard",),
    "sweep": ("optuna",),
    "transformers": ("transformers",),
}
"""Extra to what it brings, by the names they are imported under."""


def findings(root: Path) -> Iterator[tuple[bool | None, str]]:
    """What was found: True for good, False for a fault, None for what only some features need."""
    import torch

    from iam_lab.data import CATALOGUE, data_root, location
    from iam_lab.machine import facts
    from iam_lab.runs.environment import device_name, versions

    told = ", ".join(f"{name} {version}" for name, version in versions().items())
    yield True, told
    host = facts()
    yield True, f"{host['cpu']}, {host['cpus']} cores, {host['memory_gib']} GiB, {host['system']}"
    for index in range(torch.cuda.device_count()):
        yield True, f"cuda:{index}: {device_name(f'cuda:{index}')}"
    if not torch.cuda.is_available():
        yield None, "no GPU: recipes of the paper would take weeks; 'digits' and 'small' ones run on a CPU"
    for extra, modules in EXTRAS.items():
        missing = [module for module in modules if find_spec(module) is None]
        if missing:
            yield None, f"{', '.join(missing)} missing: pip install 'torch-iam[{extra}]'"
    works = abs(float(torch.ones(8, 8).mm(torch.ones(8, 8)).sum()) - 512) < 1e-3
    yield works, "torch computes" if works else "torch computes a wrong product: its build is broken"
    here = [name for name in CATALOGUE if name == "digits" or location(name, "train")]
    yield True, f"data sets in {data_root()}: {', '.join(here)}"
    nearest = next(folder for folder in (root.absolute(), *root.absolute().parents) if folder.exists())
    writable = os.access(nearest, os.W_OK)
    free = shutil.disk_usage(nearest).free / 2**30
    yield writable, f"runs go to {root.absolute()}" + ("" if writable else ", which cannot be written")
    yield free > 1, f"{free:.1f} GiB are free there" + ("" if free > 1 else ": a run needs up to one")


def doctor(root: Path = Path("runs")) -> int:
    """Say what is installed, which devices and data sets there are, and what is wrong.

    Args:
        root: folder of all runs.
    """
    sound = True
    for good, text in findings(root):
        mark = {True: "ok", None: "--", False: "!!"}[good]
        sys.stdout.write(f"{mark}  {text}\n")
        sound &= good is not False
    return 0 if sound else 1


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    return parsed(doctor, "doctor", arguments)
