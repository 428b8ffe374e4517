"""Which files hold a split, and what to say when they are not there."""

from __future__ import annotations

import os
import re
from pathlib import Path

from iam_lab.data.catalogue import DataSpec, data_root
from iam_lab.data.errors import DataError

SHARD = re.compile(r"(?P<stem>.+?)-(?P<index>\d{5})-of-(?P<total>\d{5})(?:-[0-9a-f]+)?\.parquet")
BUILDABLE = ("cifar10", "fashion_mnist", "mnist")


def find_parquet(spec: DataSpec, split: str, root: str | os.PathLike[str] | None = None) -> list[Path]:
    """The parquet files of a split, in order; none where there is none.

    They lie in ``<root>/<name>`` or in a folder directly inside it (where a download from the hub puts
    them), as one file ``train.parquet`` or as shards ``train-00000-of-00005.parquet``, hash or not.
    """
    home = data_root(root) / spec.name
    inside = [path for path in _children(home) if path.is_dir() and not path.name.startswith(".")]
    inside.sort(key=lambda path: path.name != spec.folder)  # a repository may hold several variants
    for folder in [home, *inside]:
        for stem in spec.files_of(split):
            if (folder / f"{stem}.parquet").is_file():
                return [folder / f"{stem}.parquet"]
            if shards := _shards(folder, stem):
                return shards
    return []


def find_folder(spec: DataSpec, split: str, root: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder ``<root>/<name>/<split>`` of class folders, where there is one."""
    home = data_root(root) / spec.name
    candidates = (home / stem for stem in spec.files_of(split))
    return next((path for path in candidates if any(child.is_dir() for child in _children(path))), None)


def missing(spec: DataSpec, split: str, root: str | os.PathLike[str] | None = None) -> str:
    """What to do when a split is not there."""
    home = data_root(root) / spec.name
    stem = spec.files_of(split)[0]
    ways = [f"{home / stem}.parquet, or shards {stem}-00000-of-0000N.parquet in that folder"]
    if spec.streamed:
        ways.append(f"an image folder {home / spec.files_of(split)[-1]}/<class>/*.jpg")
    advice = []
    if spec.repository:
        advice.append(
            f"online, `iam data get {spec.name}` downloads it from hf.co/datasets/{spec.repository}"
        )
        advice.append(f"or copy the files of its folder {spec.folder}/ there yourself")
    if spec.name in BUILDABLE:
        advice.append(
            f"or build it from public packages: python build_datasets.py {data_root(root)} {spec.name}"
        )
    source = "IAM_DATA" if os.environ.get("IAM_DATA") and root is None else "the data folder"
    return (
        f"{spec.name}/{split} is not in {source} {data_root(root)}. Expected: {'; or '.join(ways)}. "
        f"To get it: {'; '.join(advice)}."
    )


def _shards(folder: Path, stem: str) -> list[Path]:
    named = [(SHARD.fullmatch(path.name), path) for path in _children(folder)]
    shards = [
        (int(match["index"]), int(match["total"]), path)
        for match, path in named
        if match and match["stem"] == stem
    ]
    if not shards:
        return []
    totals = sorted({total for _, total, _ in shards})
    if len(totals) > 1:
        raise DataError(
            f"{folder} holds {stem} shards of several downloads: of {' and of '.join(map(str, totals))}. "
            "Keep one set of them."
        )
    absent = sorted(set(range(totals[0])) - {index for index, _, _ in shards})
    if absent:
        raise DataError(
            f"{folder} holds {len(shards)} of the {totals[0]} {stem} shards; missing is "
            f"{stem}-{absent[0]:05d}-of-{totals[0]:05d}.parquet"
            + (f" and {len(absent) - 1} more. " if len(absent) > 1 else ". ")
            + "Download again; what is there is kept."
        )
    return [path for _, _, path in sorted(shards)]


def _children(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
