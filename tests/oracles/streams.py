"""A GPU's streams, imagined on the CPU: who may have read what before it was written?

Every operation belongs to the stream that is current. Streams run in any order relative to each other, but for
what events say; a vector clock for each knows what has surely happened. Three things are races: reading what
another stream may not have written yet, writing what another may still read or write, and freeing memory that
another may still use: the stream that it was made on takes it again for whatever it does next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Clock = dict[str, int]


@dataclass
class Memory:
    """Who made a tensor's memory, and when each stream wrote and read it last."""

    alive: StorageWeakRef
    maker: str
    writes: Clock = field(default_factory=dict)
    reads: Clock = field(default_factory=dict)


class Streams(TorchDispatchMode):
    """Collects ``races`` while it is entered; the stream at its begin is ``"first"``."""

    def __init__(self) -> None:
        super().__init__()
        self.current = "first"
        self.clocks: dict[str, Clock] = {"first": {}}
        self.known: dict[int, Memory] = {}
        self.freed: list[Memory] = []
        self.races: list[str] = []
        self.used: dict[str, int] = {}

    @contextmanager
    def on(self, stream: str) -> Iterator[None]:
        before, self.current = self.current, stream
        self.clocks.setdefault(stream, {})
        try:
            yield
        finally:
            self.current = before

    def event(self) -> Event:
        return Event(self)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.sweep()
        schema = function._schema
        given = [*zip(schema.arguments, args, strict=False)]
        given += [
            (argument, kwargs[argument.name]) for argument in schema.arguments if argument.name in kwargs
        ]
        clock = self.clocks[self.current]
        view = any(part.alias_info is not None and not part.alias_info.is_write for part in schema.returns)
        if not view:
            self.take_again()
            clock[self.current] = clock.get(self.current, 0) + 1
            self.used[self.current] = self.used.get(self.current, 0) + 1
            for argument, value in given:
                writes = argument.alias_info is not None and argument.alias_info.is_write
                for tensor in tree_leaves(value):
                    if isinstance(tensor, Tensor):
                        self.touch(tensor, str(function), writes=writes)
        result = function(*args, **kwargs)
        for tensor in tree_leaves(result) if not view else ():
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in self.known:
                self.memory(tensor).writes[self.current] = clock[self.current]
        return result

    def memory(self, tensor: Tensor) -> Memory:
        storage = tensor.untyped_storage()
        return self.known.setdefault(storage._cdata, Memory(StorageWeakRef(storage), self.current))

    def touch(self, tensor: Tensor, what: str, *, writes: bool) -> None:
        memory, clock = self.memory(tensor), self.clocks[self.current]
        others = [("writes", memory.writes), *([("reads", memory.reads)] if writes else [])]
        for verb, times in others:
            for stream, time in times.items():
                if clock.get(stream, 0) < time:
                    self.races.append(
                        f"{what} on the {self.current} stream, while the {stream} one {verb} it"
                    )
        (memory.writes if writes else memory.reads)[self.current] = clock[self.current]

    def sweep(self) -> None:
        """Notice what has been freed."""
        gone = [key for key, memory in self.known.items() if memory.alive.expired()]
        self.freed += [self.known.pop(key) for key in gone]

    def take_again(self) -> None:
        """What the current stream made, and was freed, is its own from now on."""
        clock = self.clocks[self.current]
        for memory in [memory for memory in self.freed if memory.maker == self.current]:
            self.freed.remove(memory)
            for stream, time in [*memory.reads.items(), *memory.writes.items()]:
                if clock.get(stream, 0) < time:
                    self.races.append(
                        f"taken again on the {self.current} stream, while the {stream} one uses it"
                    )


class Event:
    """``torch.cuda.Event``, as far as the library uses it."""

    def __init__(self, streams: Streams) -> None:
        self.streams, self.seen = streams, Clock()

    def record(self) -> None:
        self.streams.sweep()
        self.seen = dict(self.streams.clocks[self.streams.current])

    def wait(self) -> None:
        self.streams.sweep()
        clock = self.streams.clocks[self.streams.current]
        for stream, time in self.seen.items():
            clock[stream] = max(clock.get(stream, 0), time)


@contextmanager
def imagined(monkeypatch: pytest.MonkeyPatch) -> Iterator[Streams]:
    """Operations inside are watched, and ``torch.cuda``'s streams and events are these."""
    streams = Streams()
    with monkeypatch.context() as patched:
        patched.setattr(torch.cuda, "Event", streams.event)
        patched.setattr(torch.cuda, "stream", streams.on)
        with streams:
            yield streams
