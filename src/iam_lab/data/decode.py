"""Encoded images to pixels."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

from iam_lab.data.errors import DataError
from iam_lab.data.source import Source
from iam_lab.lazy import require
from iam_lab.machine import cores

CHUNK = 500  # images a thread decodes at once: enough to hide the cost of handing them over
R = TypeVar("R")
MODES = {1: "L", 3: "RGB"}


def open_image(encoded: bytes | None, channels: int, where: str) -> Any:
    """A decoded PIL image, grey for one channel and RGB for three.

    Args:
        encoded: PNG, JPEG or anything else that Pillow reads.
        channels: 1 or 3.
        where: file and row, for messages.
    """
    pil = require("PIL.Image", extra="lab", purpose="Decoding images")
    if channels not in MODES:
        raise DataError(f"Images have 1 or 3 channels; {channels} were asked for.")
    if not encoded:
        raise DataError(f"{where}: there is no image, the entry is empty.")
    try:
        image = pil.open(io.BytesIO(encoded))
        image.load()
        return image if image.mode == MODES[channels] else image.convert(MODES[channels])
    except Exception as error:  # decoders of damaged files raise whatever they run into
        raise DataError(
            f"{where}: this image of {len(encoded)} bytes is damaged or of an unknown format "
            f"({type(error).__name__}: {error})."
        ) from error


def decode_all(source: Source, channels: int, size: tuple[int, int]) -> Tensor:
    """Every image of a source that has one size only, uint8 ``[N, channels, H, W]``.

    Args:
        source: the encoded images.
        channels: 1 or 3.
        size: the expected (H, W).
    """
    numpy = require("numpy", extra="lab", purpose="Decoding images")
    pixels = torch.empty((len(source), channels, *size), dtype=torch.uint8)
    target = pixels.numpy()

    def decode(first: int, images: Sequence[bytes | None]) -> None:
        chunk = numpy.empty((len(images), *size, channels), dtype=numpy.uint8)
        for row, encoded in enumerate(images):
            image = open_image(encoded, channels, source.where(first + row))
            check_size(image, size, source.where(first + row))
            chunk[row] = numpy.frombuffer(image.tobytes(), dtype=numpy.uint8).reshape(chunk[row].shape)
        target[first : first + len(images)] = chunk.transpose(0, 3, 1, 2)

    for _ in in_threads(source, decode):
        pass
    return pixels


def check_size(image: Any, size: tuple[int, int], where: str) -> None:
    """Refuse a PIL image that is not of ``size`` (H, W)."""
    if image.size != size[::-1]:
        raise DataError(
            f"{where}: the image is {image.height} x {image.width} pixels, expected {size[0]} x {size[1]}. "
            "Images of several sizes can only be streamed."
        )


def in_threads(source: Source, work: Callable[[int, Sequence[bytes | None]], R]) -> Iterator[R]:
    """Results of ``work(index of the first, encoded images)`` for chunks of a source, in order.

    Pillow lets go of the interpreter while it decodes, so threads share the work without copying images.
    Only a few chunks are read ahead: the source may be larger than memory.
    """
    threads = cores()
    pending: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for first, images in source.in_order():
                for start in range(0, len(images), CHUNK):
                    pending.append(pool.submit(work, first + start, images[start : start + CHUNK]))
                    if len(pending) > 4 * threads:
                        yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BaseException:  # do not finish the work of chunks that nobody will see
            pool.shutdown(cancel_futures=True)
            raise
