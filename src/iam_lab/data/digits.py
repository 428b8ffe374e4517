"""The 1,797 handwritten digits that come with scikit-learn: a data set that needs no download."""

from __future__ import annotations

import torch
from torch import Tensor

from iam_lab.data.catalogue import DataSpec
from iam_lab.lazy import require

BRIGHTEST = 16  # the digits count the dark cells of a 4 x 4 block


def digits(spec: DataSpec, split: str) -> tuple[Tensor, Tensor]:
    """Images uint8 ``[N, 1, 8, 8]`` and labels int64 ``[N]``.

    Every fifth image is for testing: the images are ordered by writer, and so both splits have all of them.
    """
    spec.files_of(split)  # an unknown split is an error
    bunch = require("sklearn.datasets", extra="demo", purpose="The data set 'digits'").load_digits()
    pixels = (torch.from_numpy(bunch.images) * (255 / BRIGHTEST)).round().to(torch.uint8)[:, None]
    labels = torch.from_numpy(bunch.target).to(torch.int64)
    test = torch.arange(len(labels)) % 5 == 0
    chosen = test if split == "test" else ~test
    return pixels[chosen].contiguous(), labels[chosen]
