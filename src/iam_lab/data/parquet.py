"""Images in parquet files of the hub's layout: an image struct and an integer label, whatever their names."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from iam_lab.data.errors import DataError
from iam_lab.lazy import require


@dataclass(frozen=True)
class Columns:
    """Where images and labels are in a file.

    Attributes:
        image: the image column.
        label: the label column.
        is_struct: whether the image is a struct with ``bytes`` in it, or the bytes themselves.
        class_names: of the labels, where the file says them.
    """

    image: str
    label: str
    is_struct: bool
    class_names: tuple[str, ...] | None


@dataclass(frozen=True)
class _Group:
    """One row group: where it is, and the global index of its first row."""

    file: int
    group: int
    first_in_file: int
    rows: int


class ParquetImages:
    """Encoded images and labels of one split, in one file or several.

    A row group is what parquet can read at once; reading one image reads its group. Consecutive or grouped
    reads are fast, since the last ``kept_groups`` groups stay in memory. Workers of a ``DataLoader`` open
    the files anew.

    Args:
        files: in order.
        label: which column holds the labels, when there are several integer ones.

    Attributes:
        kept_groups: how many row groups stay in memory; see :meth:`expect_window`.
    """

    def __init__(self, files: Sequence[Path], label: str | None = None) -> None:
        self.files = tuple(files)
        self.kept_groups = 2
        self._owner = os.getpid()
        self._open: dict[int, Any] = {}
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self.columns = columns_of(self.files[0], _parquet_file(self.files[0]).schema_arrow, label)
        self._groups: list[_Group] = []
        for number, path in enumerate(self.files):
            file = self._file(number)
            if columns_of(path, file.schema_arrow, label) != self.columns:
                raise DataError(f"{path} has other columns or classes than {self.files[0]}: {self.columns}.")
            first = 0
            for group in range(file.metadata.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                self._groups.append(_Group(number, group, first, rows))
                first += rows
        self._starts = [0, *accumulate(group.rows for group in self._groups)]

    def __len__(self) -> int:
        return self._starts[-1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": {}, "_kept": OrderedDict()}

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, where the files say them."""
        return self.columns.class_names

    @property
    def group_sizes(self) -> list[int]:
        """Number of consecutive images that are read together, group by group."""
        return [group.rows for group in self._groups]

    def expect_window(self, groups: int) -> None:
        """Keep in memory what reads back and forth between so many groups need."""
        self.kept_groups = max(groups, 2)

    def where(self, index: int) -> str:
        """File and row of an image, for messages."""
        group, row = self._locate(index)
        found = self._groups[group]
        return f"{self.files[found.file]}, row {found.first_in_file + row}"

    def labels(self) -> Tensor:
        """All labels, int64 ``[N]``."""
        parts = []
        for number, path in enumerate(self.files):
            column = self._column(number, self.columns.label)
            if column.null_count:
                row = column.is_null().index(True).as_py()
                raise DataError(f"{path}, row {row}: the label ({self.columns.label}) is missing.")
            parts.append(torch.from_numpy(column.to_numpy(zero_copy_only=False).astype("int64")))
        return torch.cat(parts)

    def encoded(self, index: int) -> bytes:
        """The encoded image (PNG, JPEG, ...) at ``index``."""
        group, row = self._locate(index)
        value = self._images(group)[row].as_py()
        if value is None:
            raise DataError(f"{self.where(index)}: the image ({self.columns.image}) is missing.")
        return bytes(value)

    def in_order(self) -> Iterator[tuple[int, list[bytes | None]]]:
        """Every row group: the index of its first image, and its encoded images."""
        for group, first in enumerate(self._starts[:-1]):
            yield first, self._read(group).to_pylist()

    def _locate(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} of {len(self)} images")
        group = bisect_right(self._starts, index) - 1
        return group, index - self._starts[group]

    def _images(self, group: int) -> Any:
        if group not in self._kept:
            self._kept[group] = self._read(group)
            while len(self._kept) > self.kept_groups:
                self._kept.popitem(last=False)
        self._kept.move_to_end(group)
        return self._kept[group]

    def _read(self, group: int) -> Any:
        found = self._groups[group]
        column = self._column(found.file, self.columns.image, found.group)
        return column.field("bytes") if self.columns.is_struct else column

    def _column(self, number: int, name: str, group: int | None = None) -> Any:
        file = self._file(number)
        groups = range(file.metadata.num_row_groups) if group is None else [group]
        try:
            return file.read_row_groups(groups, columns=[name], use_threads=False).column(0).combine_chunks()
        except (OSError, ValueError) as error:  # pyarrow's errors are both
            place = "" if group is None else f", row group {group}"
            raise DataError(
                f"{self.files[number]} is damaged in column {name}{place}: {error}. Delete it and get it again."
            ) from error

    def _file(self, number: int) -> Any:
        if self._owner != os.getpid():  # a forked worker: its parent's open files are not for it
            self._owner, self._open = os.getpid(), {}
        if number not in self._open:
            self._open[number] = _parquet_file(self.files[number])
        return self._open[number]


def columns_of(path: Path, schema: Any, label: str | None = None) -> Columns:
    """Where images and labels are, by the hub's metadata or else by the types of the columns.

    Args:
        path: of the file, for messages.
        schema: its Arrow schema.
        label: name of the label column; needed only when several could be.
    """
    features = _hub_features(schema)
    kinds = {name: feature.get("_type") for name, feature in features.items() if isinstance(feature, dict)}
    types: dict[str, Any] = {field.name: field.type for field in schema}
    images = [name for name in types if kinds.get(name) == "Image"]
    images = images or [name for name, type_ in types.items() if _holds_bytes(type_)]
    listing = ", ".join(f"{name}: {type_}" for name, type_ in types.items())
    if not images:
        raise DataError(
            f"{path} has no image column: a struct with 'bytes', or binary. Found {listing or 'no column'}."
        )
    integers = [name for name, type_ in types.items() if _is_integer(type_)]
    named = [name for name in integers if kinds.get(name) == "ClassLabel"]
    labels = [name for name in integers if name == label] or named or integers
    if not labels:
        raise DataError(f"{path} has no label column of integers. Found {listing}.")
    if len(labels) > 1:
        raise DataError(
            f"{path} has several columns that may be the labels: {', '.join(labels)}. "
            f"Say which one counts, for example label={labels[0]!r}."
        )
    names = features.get(labels[0], {}).get("names")
    return Columns(images[0], labels[0], _is_struct(types[images[0]]), tuple(names) if names else None)


def _parquet_file(path: Path) -> Any:
    parquet = require("pyarrow.parquet", extra="lab", purpose="Reading data sets")
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} ({path.stat().st_size} bytes) is not a whole parquet file: {error}. "
            "Delete it and get it again."
        ) from error


def _hub_features(schema: Any) -> dict[str, Any]:
    raw = (schema.metadata or {}).get(b"huggingface")
    if raw is None:
        return {}
    try:
        features = json.loads(raw)["info"]["features"]
    except (ValueError, KeyError, TypeError):  # foreign metadata: the types of the columns must do
        return {}
    return features if isinstance(features, dict) else {}


def _is_struct(type_: Any) -> bool:
    return str(type_).startswith("struct<")


def _holds_bytes(type_: Any) -> bool:
    if _is_struct(type_):
        return any(type_.field(i).name == "bytes" for i in range(type_.num_fields))
    return str(type_) in ("binary", "large_binary")


def _is_integer(type_: Any) -> bool:
    return str(type_) in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
