"""Small files in the layouts of the real ones."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from iam_lab.data import DataSpec


def encode(pixels, kind="PNG"):
    """``[H, W]`` or ``[H, W, 3]`` bytes as a file."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


class Files:
    """Writes image files and parquet files; pixels are random, by seed."""

    encode = staticmethod(encode)

    def pixels(self, count, size=8, channels=3, seed=0):
        """Random images, uint8 ``[count, size, size(, 3)]``."""
        shape = (count, size, size) + ((channels,) if channels > 1 else ())
        return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)

    def parquet(
        self,
        path,
        images,
        labels,
        image="img",
        label="label",
        names=None,
        hub=True,
        extra=None,
        struct=True,
        rows=4,
    ):
        """One file of the hub's layout; ``images`` are pixels or, where they should be odd, bytes."""
        encoded = [i if isinstance(i, bytes) or i is None else encode(i) for i in images]
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        column = (
            pa.array([{"bytes": e, "path": None} for e in encoded], kind) if struct else pa.array(encoded)
        )
        columns = {image: column, label: pa.array(labels, pa.int64()), **(extra or {})}
        features = {image: {"_type": "Image"}, label: {"_type": "ClassLabel", "names": names or []}}
        features |= {name: {"_type": "ClassLabel", "names": []} for name in extra or {}}
        table = pa.table(columns)
        if hub:
            table = table.replace_schema_metadata(
                {"huggingface": json.dumps({"info": {"features": features}})}
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, row_group_size=rows)
        return path


@pytest.fixture
def files():
    return Files()


@pytest.fixture
def tiny():
    """A data set of three classes, 8 x 8 pixels, in colour."""
    return DataSpec("tiny", 3, 3, 8, (0.5, 0.4, 0.3), (0.2, 0.2, 0.25), {"train": 10, "test": 6})
