"""Operations by their plain formulas, where the fused ones have no second derivative or a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.weight_norm import WeightNorm
from torch.overrides import TorchFunctionMode


@contextmanager
def differentiable_twice(model: nn.Module) -> Iterator[None]:
    """Attention and weight normalisation by formulas that have all derivatives.

    The fused kernels of attention have no second derivative and no forward mode. Those of weight_norm have a
    second derivative that is wrong: Hessians came out asymmetric, and a third off.
    """
    normed = PlainWeightNorm() if has_weight_norm(model) else nullcontext()
    with sdpa_kernel(SDPBackend.MATH), normed:
        yield


def has_weight_norm(model: nn.Module) -> bool:
    """Whether a module has a weight of given direction and length, as a hook or as a parametrization."""
    return any(
        isinstance(module, _WeightNorm)
        or any(isinstance(hook, WeightNorm) for hook in module._forward_pre_hooks.values())
        for module in model.modules()
    )


class PlainWeightNorm(TorchFunctionMode):
    """Has ``torch._weight_norm`` computed as it reads: g v / ||v||."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Every function as it is, but for this one."""
        called = weight_norm if func is torch._weight_norm else func
        return called(*args, **(kwargs or {}))


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """The weight of direction v, and of length g along every dimension but ``dim``; -1 is all of them.

    >>> v, g = torch.randn(3, 4), torch.rand(3, 1)
    >>> torch.allclose(weight_norm(v, g), torch._weight_norm(v, g))
    True
    """
    if dim == -1:
        length: Tensor = torch.linalg.vector_norm(v)
    else:
        others = [axis for axis in range(v.ndim) if axis != dim]
        length = torch.linalg.vector_norm(v, dim=others, keepdim=True)
    return v * (g / length)
