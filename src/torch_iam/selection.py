"""Which weights may move: filters, lists and groups, as a user writes them in ``params=``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from torch_iam.options import above_zero

Filter: TypeAlias = Callable[[str, nn.Parameter], bool]
COMPILED = "_orig_mod."
"""What ``torch.compile`` puts into the names of weights."""
Params: TypeAlias = "Filter | Iterable[nn.Parameter] | Sequence[Mapping[str, Any]] | None"


def no_norms_and_biases(name: str, weight: nn.Parameter) -> bool:
    """A filter for ``params=``: matrices and filters move, biases and normalisation weights do not."""
    return weight.ndim >= 2


def is_bias(name: str) -> bool:
    """Whether a weight is a bias by its name: ``head.bias``, ``attention.in_proj_bias``, ``rnn.bias_ih_l0``."""
    last = name.rpartition(".")[2]
    return last.startswith("bias") or last.endswith("bias")


def named(*parts: str) -> Filter:
    """A filter for ``params=``: the weights whose name contains one of ``parts``.

    >>> import torch
    >>> named("lora_A", "lora_B")("layers.0.lora_A.weight", nn.Parameter(torch.zeros(1)))
    True
    """
    return lambda name, weight: any(part in name for part in parts)


def groups_of(params: Params) -> list[Mapping[str, Any]]:
    """What ``params=`` says, as groups: one without a radius of its own where it names none."""
    if params is None or callable(params):
        return [{"params": params}]
    listed = [params] if isinstance(params, Tensor) else list(params)
    groups = [item for item in listed if isinstance(item, Mapping)]
    if groups and len(groups) == len(listed):
        for group in groups:
            if "params" not in group or group.keys() - {"params", "rho"}:
                raise ValueError(
                    f"A group of params= is {{'params': ..., 'rho': ...}} or {{'params': ...}}, found keys "
                    f"{sorted(group)}."
                )
        return groups
    return [{"params": listed}]


def admit(model: nn.Module) -> None:
    """Refuse, by name, a model whose weights cannot be replaced for a pass."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"The model must be an nn.Module, found {type(model).__name__}.")
    for name, part in model.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise ValueError(
                f"{name or 'The model'!r} is a scripted or traced module, whose weights cannot be replaced for a "
                "perturbed pass. Use the module it was made from, with torch.compile if need be."
            )
    fsdp = sys.modules.get("torch.distributed.fsdp")  # nothing is wrapped in it where nobody has imported it
    wrapper = () if fsdp is None else fsdp.FullyShardedDataParallel
    sharded = [
        name or type(part).__name__ for name, part in model.named_modules() if isinstance(part, wrapper)
    ]
    sharded += [name for name, weight in model.named_parameters() if type(weight.data).__name__ == "DTensor"]
    if sharded:
        raise ValueError(
            f"The weights of {sharded[0]!r} are sharded over devices (FSDP or tensor parallel), which torch_iam does "
            "not support yet: a perturbed pass would not gather them. Use DistributedDataParallel."
        )


def chosen_of(model: nn.Module, wanted: Any) -> list[tuple[str, nn.Parameter]]:
    """Name and weight of what a filter or a list chooses among the trainable weights of ``model``.

    A filter sees the names that the weights have outside ``torch.compile``.
    """
    trainable = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    if wanted is None:
        chosen = trainable
    elif callable(wanted):
        chosen = [(name, weight) for name, weight in trainable if wanted(name.replace(COMPILED, ""), weight)]
    else:
        chosen = _listed(model, list(wanted), trainable)
    unfit = [name for name, weight in chosen if weight.is_complex()]
    unfit += [name for name, weight in chosen if id(weight) in _sparse(model)]
    if unfit:
        raise ValueError(
            f"{unfit[0]!r} has complex entries or sparse gradients, which a ball does not take. Write "
            f"sparse=False, or leave it out: params=lambda name, weight: name != {unfit[0]!r}."
        )
    if not chosen:
        total = sum(1 for _ in model.parameters())
        raise ValueError(
            f"No weight may move: the model has {total} parameters, {len(trainable)} of them trainable, and "
            "params= chooses none. Set requires_grad or choose others."
        )
    return chosen


def _sparse(model: nn.Module) -> set[int]:
    """The weights of embeddings that answer with sparse gradients."""
    kinds = (nn.Embedding, nn.EmbeddingBag)
    return {id(part.weight) for part in model.modules() if isinstance(part, kinds) and part.sparse}


def _listed(
    model: nn.Module, wanted: list[Any], trainable: list[tuple[str, nn.Parameter]]
) -> list[tuple[str, nn.Parameter]]:
    known = {id(weight) for weight in model.parameters()}
    for weight in wanted:
        if not isinstance(weight, nn.Parameter) or id(weight) not in known:
            raise ValueError(
                f"params= holds {type(weight).__name__} that is no parameter of this model; pass its "
                "parameters, a filter (name, weight) -> bool, or groups [{'params': ..., 'rho': ...}]."
            )
    ids = {id(weight) for weight in wanted}
    return [(name, weight) for name, weight in trainable if id(weight) in ids]


def check_rho(rho: Any) -> float:
    """The radius as a float, or an error that says what a radius is."""
    return above_zero("rho", rho, "; the paper's is 0.1")
