"""``last.ckpt``: everything the next step of a run depends on, loaded without running anybody's code."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from iam_lab.errors import LabError, RecipeError, RunError, first_line
from iam_lab.lazy import require
from iam_lab.recipes.schema import Config
from iam_lab.recipes.typed import changes, from_plain, to_plain
from iam_lab.runs.files import write_atomic

MAGIC = "iam-run"
FORMAT = 1
MEND = "Bring a good copy back, or move it away to start over."


def save(path: Path, config: Config, state: Mapping[str, Any]) -> None:
    """Write a checkpoint in one instant; ``state`` is made of dicts, lists, tensors and numbers."""
    buffer = io.BytesIO()  # so that a full disk is met by our own write, with its own error
    torch.save({"kind": MAGIC, "format": FORMAT, "config": to_plain(config), "state": dict(state)}, buffer)
    write_atomic(path, buffer.getvalue())


def load(path: Path, config: Config, device: torch.device | str) -> dict[str, Any]:
    """The state saved at ``path`` by a run of this very config."""
    try:
        written = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.") from error
    try:
        content = torch.load(io.BytesIO(written), map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        raise RunError(
            f"{path} holds more than tensors and numbers, so that loading it would run code: it is no "
            "checkpoint of this program. Move it away to start over."
        ) from error
    except Exception as error:  # a damaged archive fails wherever it is read
        raise RunError(
            f"{path} ({len(written)} bytes) is damaged or no checkpoint: {first_line(error).rstrip('.:')}. {MEND}"
        ) from error
    if not isinstance(content, dict) or content.get("kind") != MAGIC:
        raise RunError(f"{path} is no checkpoint of a run: it was written by another program.")
    if content.get("format") != FORMAT:
        raise RunError(f"{path} has format {content.get('format')!r}, this version reads {FORMAT}.")
    if not isinstance(content.get("config"), dict) or not isinstance(content.get("state"), dict):
        raise RunError(f"{path} lacks its config or its state. {MEND}")
    try:
        saved = from_plain(Config, content["config"])  # a field that is newer than the file has its default
    except RecipeError as error:
        raise RunError(f"{path} is not of this version: {error}") from error
    differing = changes(saved, config)
    if differing:
        raise RunError(f"{path} belongs to another run: {min(differing)} differs ({json.dumps(differing)}).")
    state: dict[str, Any] = content["state"]
    return state


@contextmanager
def taken_up(path: Path) -> Iterator[None]:
    """Name the checkpoint whose state does not fit what takes it up."""
    try:
        yield
    except (LabError, torch.OutOfMemoryError):
        raise
    except KeyError as error:
        raise RunError(f"{path} is no state of this run: it has no {error.args[0]!r}. {MEND}") from error
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise RunError(f"{path} is no state of this run: {first_line(error).rstrip('.:')}. {MEND}") from error


def save_weights(path: Path, weights: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Weights alone, for whoever wants to use them; tied ones are written once for each name.

    The metadata is one entry, ``run``, of JSON: safetensors writes several in a random order, and the same
    weights would not give the same file.
    """
    safetensors = require("safetensors.torch", extra="lab", purpose="Saving weights")
    own = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in weights.items()}
    write_atomic(path, safetensors.save(own, metadata={"run": json.dumps(metadata)}))


def load_weights(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Weights that :func:`save_weights`, or any other program, has written."""
    safetensors = require("safetensors.torch", extra="lab", purpose="Loading weights")
    try:
        found: dict[str, Tensor] = safetensors.load_file(path, device=str(device))
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # safetensors' own errors derive from nothing more telling
        raise RunError(f"{path} is no whole safetensors file: {first_line(error).rstrip('.:')}.") from error
    return found
