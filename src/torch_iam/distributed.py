"""What one rank does alone and what all ranks do together.

A rank sees its own part of the batch, and by default climbs for itself: every device has its own delta,
which is m-sharpness with m = the examples of a device. Only the outer gradient is averaged. The objective
evaluates the module inside DistributedDataParallel and averages ``.grad`` itself, because the wrapper's
reducer knows of no pass at other weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from torch_iam.directions import Direction
from torch_iam.perturb import unwrapped

SYNCS = ("local", "global")


class Ranks:
    """The process group of a model, if it has one.

    Args:
        inner: the module that computes, out of its wrapper.
        wrapper: the DistributedDataParallel around it, or None.
    """

    def __init__(self, inner: nn.Module, wrapper: DistributedDataParallel | None = None) -> None:
        self.inner, self.wrapper = inner, wrapper

    @classmethod
    def of(cls, model: nn.Module) -> Ranks:
        """Take a wrapper off, or say why that cannot be done."""
        if isinstance(model, DistributedDataParallel):
            return cls(model.module, model)
        if isinstance(unwrapped(model), DistributedDataParallel):
            raise ValueError(
                "torch.compile around DistributedDataParallel hides the ranks from each other's delta: write "
                "DistributedDataParallel(torch.compile(net)) instead of torch.compile(DistributedDataParallel(net))."
            )
        return cls(model)

    @property
    def group(self) -> Any:
        """The process group, None without a wrapper."""
        return None if self.wrapper is None else self.wrapper.process_group

    def seed(self, seed: int | None, sync: str) -> int:
        """The seed of this rank's starts: its own, or with ``sync="global"`` that of all."""
        base = torch.initial_seed() if seed is None else seed
        if self.group is None:
            return base
        if sync == "local":
            return base + dist.get_rank(self.group)
        agreed = [base]
        dist.broadcast_object_list(agreed, src=dist.get_global_rank(self.group, 0), group=self.group)
        return agreed[0]

    def combine(self, sync: str) -> Callable[[Direction], None] | None:
        """What the ascent does with a gradient: average it over the ranks with ``sync="global"``."""
        if sync not in SYNCS:
            raise ValueError(f"sync must be one of {SYNCS}, found {sync!r}.")
        return None if self.group is None or sync == "local" else self.average

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Average ``.grad`` over the ranks afterwards, but inside ``no_sync()``."""
        if self.wrapper is None:
            yield
            return
        self._share_buffers(self.wrapper)
        yield
        if self.wrapper.require_backward_grad_sync:
            weights = [weight for weight in self.inner.parameters() if weight.requires_grad]
            if self.wrapper.find_unused_parameters:
                weights = self._used_anywhere(weights)
            for weight in weights:
                if weight.grad is None:
                    weight.grad = torch.zeros_like(weight)
            self.average([weight.grad for weight in weights if weight.grad is not None])

    def average(self, tensors: Sequence[Tensor]) -> None:
        """The mean over the ranks, in place, in one message for each dtype."""
        size = dist.get_world_size(self.group)
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            same = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1) for tensor in same]).div_(size)
            dist.all_reduce(flat, group=self.group)
            pieces = torch.split(flat, [tensor.numel() for tensor in same])
            torch._foreach_copy_(same, [p.view_as(t) for p, t in zip(pieces, same, strict=True)])

    def _used_anywhere(self, weights: Sequence[nn.Parameter]) -> list[nn.Parameter]:
        """Those with a gradient on some rank: one that has none stays without, and optimizers leave it alone."""
        used = torch.tensor([weight.grad is not None for weight in weights], dtype=torch.uint8)
        told = used.to(weights[0].device)
        dist.all_reduce(told, dist.ReduceOp.MAX, group=self.group)
        return [weight for weight, anywhere in zip(weights, told.tolist(), strict=True) if anywhere]

    def _share_buffers(self, wrapper: DistributedDataParallel) -> None:
        if wrapper.broadcast_buffers and wrapper.require_backward_grad_sync:
            source = dist.get_global_rank(self.group, 0)
            for buffer in self.inner.buffers():
                dist.broadcast(buffer, source, group=self.group)
