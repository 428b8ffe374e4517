"""What a model is called with, and which part of its answer is the output that counts.

A model takes a tensor, a tuple of arguments or a dict of keyword arguments; it answers with a tensor,
a tuple, a dict or a Transformers ``ModelOutput``. This room is the only one that knows.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

Inputs: TypeAlias = "Tensor | tuple[Any, ...] | Mapping[str, Any]"
"""What one call of a model takes: ``model(x)``, ``model(*args)`` or ``model(**kwargs)``."""

Output: TypeAlias = Any
"""What a model returns, untouched."""

LABEL_KEYS = ("labels", "label", "targets", "target")


def call_arguments(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of the call that ``inputs`` stands for."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, tuple) else ((inputs,), {})


def call(model: nn.Module, inputs: Inputs) -> Output:
    """The model's answer to ``inputs``."""
    args, kwargs = call_arguments(inputs)
    return model(*args, **kwargs)


def logits_of(output: Output) -> Tensor:
    """The tensor that a divergence compares.

    A tensor is itself; of a mapping or an object it is the entry ``logits``; of a tuple the first tensor that
    is no single number, as a loss is.

    >>> logits_of({"logits": torch.zeros(2, 3), "loss": None}).shape
    torch.Size([2, 3])
    """
    if isinstance(output, Tensor):
        return output
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, Tensor):
        return named
    if isinstance(output, Sequence):
        shaped = next((part for part in output if isinstance(part, Tensor) and part.ndim > 0), None)
        if shaped is not None:
            return shaped
    found = f"a mapping with keys {sorted(output)}" if isinstance(output, Mapping) else type(output).__name__
    raise TypeError(
        f"The model returned {found}: no tensor, and no 'logits' or other tensor in it. "
        "Say which tensor counts with output=, for example output=lambda out: out['prediction']."
    )


def tensors_in(tree: Any) -> list[Tensor]:
    """Every tensor of a nested structure, in order."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    mapped(note, tree)
    return found


def batch_size(inputs: Inputs) -> int:
    """Length of the first dimension that most tensors of a batch share; of several such lengths the first.

    >>> batch_size({"positions": torch.zeros(1, 7), "tokens": torch.zeros(5, 7), "mask": torch.zeros(5, 7)})
    5
    """
    lengths = Counter(len(tensor) for tensor in tensors_in(inputs) if tensor.ndim > 0)
    if not lengths:
        raise TypeError(f"No tensor with a batch dimension in the inputs: found {type(inputs).__name__}.")
    return lengths.most_common(1)[0][0]


def mapped(function: Callable[..., Tensor], tree: Any, *others: Any) -> Any:
    """The structure with the function's result for every tensor, of it and of its like in the others.

    >>> mapped(torch.add, {"logits": torch.ones(1), "note": "a"}, {"logits": torch.ones(1), "note": "b"})
    {'logits': tensor([2.]), 'note': 'a'}
    """
    on_the_way: set[int] = set()

    def leaf(one: Any, *more: Any) -> Any:
        if isinstance(one, Tensor):
            return function(one, *more)
        if id(one) in on_the_way:  # an object that refers to itself
            return one
        on_the_way.add(id(one))
        changed = {}
        for name, part in _attributes(one).items():
            made = tree_map(leaf, _plain(part), *(_plain(getattr(other, name)) for other in more))
            if any(new is not old for new, old in zip(_leaves(made), _leaves(part), strict=True)):
                changed[name] = made
        on_the_way.discard(id(one))
        if not changed:
            return one
        twin = copy.copy(one)  # an answer of a class of one's own
        for name, made in changed.items():
            object.__setattr__(twin, name, made)
        return twin

    return tree_map(leaf, _plain(tree), *map(_plain, others))


def _leaves(tree: Any) -> list[Any]:
    return tree_flatten(_plain(tree))[0]


def _attributes(one: Any) -> dict[str, Any]:
    """What an object of a plain class holds; of a module, a class or a function nothing."""
    if isinstance(one, nn.Module | type | ModuleType) or callable(one):
        return {}
    if is_dataclass(one):
        return {field.name: getattr(one, field.name) for field in fields(one)}
    return dict(getattr(one, "__dict__", {}))


def rows(tree: Any, start: int, stop: int, total: int) -> Any:
    """Examples ``start`` to ``stop`` of every tensor that has ``total`` of them; the rest as it is."""
    if start == 0 and stop == total:
        return tree

    def cut(tensor: Tensor) -> Tensor:
        return tensor[start:stop] if tensor.ndim > 0 and len(tensor) == total else tensor

    return mapped(cut, tree)


def concatenate(first: Inputs, second: Inputs) -> Inputs:
    """Both batches in one, for a single forward pass.

    What is there once for all examples (a row of positions, a mask over tokens) must be the same in both.

    >>> one, two = ({"ids": torch.zeros(n, 3), "positions": torch.arange(3)[None]} for n in (2, 4))
    >>> {name: list(tensor.shape) for name, tensor in concatenate(one, two).items()}
    {'ids': [6, 3], 'positions': [1, 3]}
    """
    flat_first, spec = tree_flatten(_plain(first))
    flat_second, other_spec = tree_flatten(_plain(second))
    if spec != other_spec:
        raise ValueError(
            f"unlabeled inputs are {_form(second)}, the labelled ones {_form(first)}. Pass the same kind of thing: a "
            "tensor and a tensor, or dicts with the same keys; labels go into targets."
        )
    sizes = batch_size(first), batch_size(second)
    joined = []
    for a, b in zip(flat_first, flat_second, strict=True):
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or a.ndim == 0:
            joined.append(a)
        elif a.dtype != b.dtype:
            raise ValueError(
                f"unlabeled inputs are {b.dtype}, the labelled ones {a.dtype}: prepare both in the same way, scaling "
                "included."
            )
        elif (len(a), len(b)) == sizes and a.shape[1:] == b.shape[1:]:
            joined.append(torch.cat([a, b]))
        elif a.shape == b.shape and (a.is_cuda or torch.equal(a, b)):  # a GPU would wait for the answer
            joined.append(a)
        else:
            raise ValueError(
                f"unlabeled inputs have shape {tuple(b.shape)}, the labelled ones {tuple(a.shape)}: "
                "all but the first dimension must agree, so that one forward pass takes both, and what is there once "
                "for all examples must be the same."
            )
    return spec.unflatten(joined)  # type: ignore[no-any-return]


def in_order_of(first: Inputs, second: Inputs) -> Inputs:
    """The second batch with its keys in the order of the first: of several lengths in a batch the first counts."""
    if isinstance(first, Mapping) and isinstance(second, Mapping) and first.keys() == second.keys():
        return {name: second[name] for name in first}
    return second


def _form(inputs: Inputs) -> str:
    if isinstance(inputs, Mapping):
        return f"a dict with keys {sorted(inputs)}"
    return f"a tuple of {len(inputs)}" if isinstance(inputs, tuple) else f"a {type(inputs).__name__}"


def to_device(inputs: Inputs, device: torch.device) -> Inputs:
    """The same batch with its tensors on ``device``."""
    return mapped(lambda tensor: tensor.to(device, non_blocking=True), inputs)  # type: ignore[no-any-return]


def batches_of(
    data: Inputs | Iterable[Any],
    batch_size_limit: int | None = None,
    inputs_of: Callable[[Any], Inputs] | None = None,
) -> list[Inputs]:
    """All batches of ``data``, with labels left out.

    A tensor, tuple or mapping is what one call takes, cut into pieces of ``batch_size_limit`` examples
    when that is given. Any other iterable yields batches; of a batch ``(x, y, ...)`` the first element
    is the input, of a mapping everything but the labels. ``inputs_of`` says otherwise.
    """
    if batch_size_limit is not None and batch_size_limit < 1:
        raise ValueError(f"batch_size must be 1 or more, found {batch_size_limit}.")
    if isinstance(data, Tensor | tuple | Mapping):
        single = inputs_of(data) if inputs_of else data
        return list(_pieces(single, batch_size_limit))
    if not isinstance(data, Iterable):
        raise TypeError(
            f"inputs must be a tensor, a tuple, a dict or an iterable of batches, found {type(data).__name__}."
        )
    with torch.random.fork_rng(devices=[]):  # a DataLoader draws a seed from the global stream
        found = [(inputs_of or _without_labels)(batch) for batch in data]
    if not found:
        raise ValueError("The inputs hold no batch: the iterable is empty (or an iterator already used up).")
    return [piece for batch in found for piece in _pieces(batch, batch_size_limit)]


def _pieces(inputs: Inputs, limit: int | None) -> Iterator[Inputs]:
    total = batch_size(inputs)
    if total == 0:
        raise ValueError("The inputs hold a batch of no examples.")
    step = limit or total
    for start in range(0, total, step):
        yield rows(inputs, start, min(start + step, total), total)


def _without_labels(batch: Any) -> Inputs:
    if isinstance(batch, Tensor):
        return batch
    if isinstance(batch, Mapping):
        return {key: value for key, value in batch.items() if key not in LABEL_KEYS}
    if isinstance(batch, Sequence) and len(batch) > 0 and isinstance(batch[0], Tensor | Mapping):
        return _without_labels(batch[0])
    raise TypeError(
        f"A batch is a tensor, a dict, or a sequence that starts with one; found {type(batch).__name__}. "
        "Say what of it the model takes with inputs_of=, for example inputs_of=lambda batch: batch.images."
    )


def _plain(tree: Any) -> Any:
    """Mappings that the tree functions do not know (a tokenizer's ``BatchEncoding``) as dicts."""
    is_foreign = isinstance(tree, Mapping) and not hasattr(tree, "to_tuple")
    return dict(tree) if is_foreign else tree
