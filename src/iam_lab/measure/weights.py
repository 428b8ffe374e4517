"""Weights out of a file: safetensors, or a checkpoint of torch with whatever its writer has put around them."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from iam_lab.errors import RunError
from iam_lab.runs.checkpoint import load_weights

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
CONTAINERS = (
    "average",
    "state_dict",
    "model_state_dict",
    "model",
    "net",
    "network",
    "weights",
    "state",
    "trainer",
)
"""Where weights lie in a checkpoint, the first that is there: a run's in its trainer's state, an average first."""

PREFIXES = ("module.", "model.", "net.", "network.")
"""What DataParallel, DDP, an averaged model or Lightning put before every name."""

COMPILED = "_orig_mod."
"""What torch.compile puts before a name, of the whole or of a part."""


def load_into(model: nn.Module, path: Path) -> str:
    """Load a file's weights, and say in words where they were found."""
    found, keys = read(path)
    fill(model, fitted(found, model.state_dict()), path)
    return str(path) + "".join(f"[{key!r}]" for key in keys)


def fill(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load weights that came from ``path``; all of them, and nothing else."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise RunError(f"{path} does not fit the model: {str(error).splitlines()[-1].strip()}") from error


def read(path: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The weights in a file, and the keys under which they lie."""
    if _is_safetensors(path):
        return load_weights(path), []
    content, keys = _load(path), []
    while isinstance(content, Mapping):
        key = next((key for key in CONTAINERS if isinstance(content.get(key), Mapping)), None)
        if key is None:
            break
        content = content[key]
        keys.append(key)
    tensors = _tensors(content)
    if not tensors:
        raise RunError(
            f"{path} holds no weights by their names: found {_described(content)}. "
            "Save them with torch.save(model.state_dict(), 'weights.pt')."
        )
    return tensors, keys


def fitted(weights: Mapping[str, Tensor], wanted: Iterable[str]) -> dict[str, Tensor]:
    """The weights under the names that they have without a wrapper.

    >>> sorted(fitted({"module._orig_mod.weight": torch.ones(1), "n_averaged": torch.ones(())}, ["weight"]))
    ['weight']
    """
    own = list(wanted)
    found = {name.replace(COMPILED, ""): tensor for name, tensor in weights.items()}
    if "n_averaged" not in own:  # AveragedModel's count of steps
        found.pop("n_averaged", None)
    while prefix := next((part for part in PREFIXES if _all(found, part) and not _all(own, part)), None):
        found = {name.removeprefix(prefix): tensor for name, tensor in found.items()}
    return found


def _is_safetensors(path: Path) -> bool:
    """By its name, else by its ninth byte: a length of eight bytes, then JSON."""
    if path.suffix == ".safetensors":
        return True
    try:
        with open(path, "rb") as file:
            return file.read(9)[8:] == b"{"
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.") from error


def _load(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
        if foreign is None:
            raise RunError(_damaged(path, error)) from error
        raise RunError(
            f"{path} holds more than tensors and numbers ({foreign[1]}), and loading that would run code. Where "
            "it was made, save the weights alone: torch.save(model.state_dict(), 'weights.pt')."
        ) from error
    except Exception as error:  # a damaged archive fails wherever it is read
        raise RunError(_damaged(path, error)) from error


def _damaged(path: Path, error: Exception) -> str:
    told = str(error).rpartition("WeightsUnpickler error:")[2].strip().splitlines()
    return (
        f"{path} is neither safetensors nor a whole checkpoint of torch "
        f"({type(error).__name__}{': ' + told[0] if told else ''}). Bring a good copy back."
    )


def _tensors(content: Any) -> dict[str, Tensor]:
    if not isinstance(content, Mapping):
        return {}
    return {str(name): value for name, value in content.items() if isinstance(value, Tensor)}


def _described(content: Any) -> str:
    if not isinstance(content, Mapping):
        return f"a {type(content).__name__}"
    return f"the keys {', '.join(map(str, list(content)[:8]))}" if content else "nothing"


def _all(names: Iterable[str], prefix: str) -> bool:
    listed = list(names)
    return bool(listed) and all(name.startswith(prefix) for name in listed)
