"""What all tests share."""

from __future__ import annotations

import importlib.util
import signal

import hypothesis
import torch

# The same examples in every run, and no clock: a busy machine is not a counter-example.
hypothesis.settings.register_profile("steady", derandomize=True, deadline=None, max_examples=30)
hypothesis.settings.load_profile("steady")

# A shell's job in the background is deaf to Ctrl-C, and every run that a test starts and interrupts would be too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# --- torchvision beside a CPU-only torch ---------------------------------------------------------------
# torchvision's Python files register shape rules for two operators of its compiled library on import. Where
# that library does not load (a CUDA build beside a CPU torch) the operators are missing and the import
# fails, although the transforms need neither. Naming them is enough.
_torchvision_operators: torch.library.Library | None = None
if importlib.util.find_spec("torchvision") is not None:
    try:
        import torchvision  # noqa: F401
    except RuntimeError as missing:
        if "torchvision::" not in str(missing):
            raise
        _torchvision_operators = torch.library.Library("torchvision", "DEF")
        for _operator in ("nms", "qnms"):
            _torchvision_operators.define(
                f"{_operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
# -------------------------------------------------------------------------------------------------------
