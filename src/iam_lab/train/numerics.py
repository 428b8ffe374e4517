"""Seeds, random streams, and in what numbers is computed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from iam_lab.errors import RecipeError, RunError, first_line
from iam_lab.recipes.schema import Training

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def device_of(name: str) -> torch.device:
    """The device called ``name``; ``auto`` is the first GPU, or else the CPU.

    >>> device_of("cpu")
    device(type='cpu')
    """
    if name == "auto":
        name = "cuda:0" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # a CPU build of torch asserts that it has no CUDA
        raise RunError(f"There is no device {name!r} here: {first_line(error)}") from error
    if device.type == "meta":
        raise RunError(
            "The device 'meta' has shapes and no numbers: choose cpu, or cuda where there is a GPU."
        )
    return device


def seed_for(seed: int, purpose: str) -> int:
    """A seed of its own for every purpose, so that no two streams of a run are the same.

    >>> seed_for(0, "order") != seed_for(0, "ascent") != seed_for(1, "ascent")
    True
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}".encode()).digest()[:7], "big")


@contextmanager
def numerics(training: Training, seed: int, device: torch.device) -> Iterator[None]:
    """Torch seeded and set up for a run; afterwards its settings and streams are what they were."""
    cudnn = torch.backends.cudnn
    before = (
        torch.are_deterministic_algorithms_enabled(),
        cudnn.benchmark,
        cudnn.deterministic,
        torch.get_float32_matmul_precision(),
    )
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        try:
            if training.deterministic:
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as cuBLAS asks for
                torch.use_deterministic_algorithms(True)
            cudnn.deterministic = training.deterministic
            cudnn.benchmark = not training.deterministic
            if on_gpu and not training.deterministic:
                torch.set_float32_matmul_precision("high")
            torch.manual_seed(seed)
            yield
        finally:
            torch.use_deterministic_algorithms(before[0])
            cudnn.benchmark, cudnn.deterministic = before[1], before[2]
            torch.set_float32_matmul_precision(before[3])


def random_state(device: torch.device) -> dict[str, Any]:
    """Torch's global streams, which Dropout and the drawing of weights use."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["device"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    """Continue the streams from there."""
    torch.set_rng_state(state["cpu"].cpu())
    if device.type == "cuda" and "device" in state:
        torch.cuda.set_rng_state(state["device"].cpu(), device)


def autocast(training: Training, device: torch.device) -> AbstractContextManager[Any]:
    """The autocast of a recipe's precision."""
    if training.precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[training.precision])


def scaler_for(training: Training, device: torch.device) -> torch.amp.GradScaler | None:
    """What keeps small gradients from vanishing in ``fp16``."""
    return torch.amp.GradScaler(device.type) if training.precision == "fp16" else None


@contextmanager
def field(name: str, options: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Say which group of a recipe's fields a mistake is in; one of type is in its options, if it has any.

    >>> with field("model", {"hidden": "abc"}):
    ...     "abc" < 1
    Traceback (most recent call last):
        ...
    iam_lab.errors.RecipeError: model.options hidden='abc': '<' not supported between instances of 'str' and 'int'
    """
    try:
        yield
    except RecipeError:
        raise
    except TypeError as error:
        told = ", ".join(f"{option}={value!r}" for option, value in (options or {}).items())
        raise RecipeError(f"{name}.options {told}: {error}" if told else f"{name}: {error}") from error
    except (ValueError, ArithmeticError) as error:
        raise RecipeError(f"{name}: {error}") from error
