"""How much several models of one training procedure disagree, on inputs alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from torch_iam.divergence import CategoricalKL, Divergence, total
from torch_iam.guards import devices_of, mode
from torch_iam.inputs import Inputs, Output, batch_size, batches_of, logits_of, to_device
from torch_iam.perturb import Visit
from torch_iam.positions import Mask, chosen_by, fits


@dataclass(frozen=True)
class Pairwise:
    """A mean over pairs of models.

    Attributes:
        value: the mean over pairs, then over data splits.
        stderr: over splits where there are several, else over models (jackknife); NaN for a single pair.
        pairs: the value of each ordered pair, ``[models, models]`` with a zero diagonal, for every split.
        inputs: the number of examples.
    """

    value: float
    stderr: float
    pairs: list[Tensor] = field(repr=False)
    inputs: int

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        """One line, as ``print`` shows it."""
        spread = "" if math.isnan(self.stderr) else f" ± {self.stderr:.2g}"
        models = sum(len(table) for table in self.pairs)
        return f"{self.value:.4g}{spread}   {models} models, {self.inputs} inputs"


def disagreement(
    models: Iterable[nn.Module],
    inputs: Inputs | Iterable[Any],
    *,
    dim: int | None = None,
    mask: Mask = "attention_mask",
    batch_size: int | None = None,
    inputs_of: Callable[[Any], Inputs] | None = None,
    output: Callable[[Output], Tensor] | None = None,
) -> Pairwise:
    r"""How often two models choose different classes (Jiang et al., 2022).

    .. math:: \mathbb{E}_{\theta \ne \theta'}\, P_x\big[\arg\max f(x; \theta) \ne \arg\max f(x; \theta')\big]

    Models trained on the same data with different seeds disagree on test inputs about as often as they err.

    Args:
        models: two or more; one at a time is taken from an iterator.
        inputs: a tensor, tuple or dict that the models take, or an iterable of batches, labels ignored.
        dim: the class dimension, by default as for :class:`~torch_iam.CategoricalKL`.
        mask: which positions count, likewise.
        batch_size: cut larger batches into pieces of this many examples.
        inputs_of: what of a batch a model takes, where that is not its first element.
        output: which tensor of a model's answer counts, where it is not found by itself.

    >>> _ = torch.manual_seed(0)
    >>> one = nn.Linear(2, 3)
    >>> float(disagreement([one, one], torch.randn(8, 2)))
    0.0
    """
    batches = batches_of(inputs, batch_size, inputs_of)
    shapes, answers = [], []
    for model in models:  # one at a time: of their logits only the choice is kept
        outputs = _outputs(model, batches, output)
        shapes.append([tuple(logits.shape) for logits in outputs])
        answers.append([logits.argmax(_class_dim(logits, dim)) for logits in outputs])
    _refuse_other_shapes(shapes)
    table = _table(answers, lambda one, other, inputs: _differing(one, other, mask, inputs), batches)
    return _summary([table], batches)


def inconsistency(
    models: Iterable[nn.Module] | Iterable[Iterable[nn.Module]],
    inputs: Inputs | Iterable[Any],
    *,
    divergence: Divergence | None = None,
    batch_size: int | None = None,
    inputs_of: Callable[[Any], Inputs] | None = None,
    output: Callable[[Output], Tensor] | None = None,
) -> Pairwise:
    r"""How far the outputs of models of one training procedure are apart (Johnson and Zhang, 2023).

    .. math:: \mathcal{C} = \mathbb{E}_{Z}\, \mathbb{E}_{\theta \ne \theta' | Z}\, \mathbb{E}_x\,
        \mathrm{KL}\big(f(x; \theta)\,\|\,f(x; \theta')\big)

    For weights drawn from N(theta, s² I) it is s² Tr(F(theta)) in the limit of small s.

    Args:
        models: two or more trained on the same data Z; or one such group for every data split.
        inputs: a tensor, tuple or dict that the models take, or an iterable of batches, labels ignored.
        divergence: :class:`~torch_iam.CategoricalKL` by default.
        batch_size: cut larger batches into pieces of this many examples.
        inputs_of: what of a batch a model takes, where that is not its first element.
        output: which tensor of a model's answer counts, where it is not found by itself.

    >>> _ = torch.manual_seed(0)
    >>> found = inconsistency([nn.Linear(2, 3) for _ in range(3)], torch.randn(8, 2))
    >>> found.value > 0, found.pairs[0].shape
    (True, torch.Size([3, 3]))
    """
    batches = batches_of(inputs, batch_size, inputs_of)
    measure = CategoricalKL() if divergence is None else divergence
    tables, alone = [], []
    for entry in models:
        if isinstance(entry, nn.Module) and not isinstance(entry, nn.ModuleList):
            alone.append(_outputs(entry, batches, output))
        else:
            tables.append(_table([_outputs(m, batches, output) for m in entry], _kl(measure), batches))
    if alone and tables:
        raise ValueError(
            f"models holds {len(alone)} models beside {len(tables)} groups of models: pass models trained on the "
            "same data, or one group of them for every data split."
        )
    return _summary(tables or [_table(alone, _kl(measure), batches)], batches)


Compare = Callable[[Tensor, Tensor, Inputs], tuple[Tensor, Tensor]]
"""A sum over positions and their number."""


def _kl(divergence: Divergence) -> Compare:
    def compare(one: Tensor, other: Tensor, inputs: Inputs) -> tuple[Tensor, Tensor]:
        found = total(divergence, one, other, inputs)
        return found.value, found.number

    return compare


def _differing(one: Tensor, other: Tensor, mask: Mask, inputs: Inputs) -> tuple[Tensor, Tensor]:
    counted = chosen_by(mask, inputs)
    if counted is None or not fits(mask, counted, one):
        return (one != other).sum(), torch.tensor(float(one.numel()))
    return ((one != other) & counted).sum(), counted.sum()


def _outputs(
    model: nn.Module, batches: Sequence[Inputs], output: Callable[[Output], Tensor] | None
) -> list[Tensor]:
    """The logits for every batch in eval mode; the model is left as it was found."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"models is an iterable of nn.Module, found {type(model).__name__} in it.")
    read, found = logits_of if output is None else output, []
    device = devices_of(model)[0]
    with torch.no_grad(), mode(model, False):
        for index, batch in enumerate(batches):
            here = to_device(batch, device)
            logits = read(Visit(model, here, leave_trace=False).clean())
            if not bool(torch.isfinite(logits).all()):
                raise FloatingPointError(
                    f"A model's outputs are NaN or infinite in batch {index} of {len(batches)}."
                )
            found.append(logits)
    return found


def _table(answers: Sequence[Sequence[Tensor]], compare: Compare, batches: Sequence[Inputs]) -> Tensor:
    """The mean over inputs for every ordered pair, ``[models, models]``."""
    if len(answers) < 2:
        raise ValueError(f"A pair takes two models trained on the same data, found {len(answers)}.")
    _refuse_other_shapes([[tuple(output.shape) for output in outputs] for outputs in answers])
    table = torch.zeros(len(answers), len(answers), dtype=torch.float64)
    for i, one in enumerate(answers):
        for j, other in enumerate(answers):
            if i == j:
                continue
            parts = [
                compare(a, b.to(a.device), to_device(batch, a.device))
                for a, b, batch in zip(one, other, batches, strict=True)
            ]
            sums, counts = zip(*parts, strict=True)
            table[i, j] = float(sum(map(float, sums))) / max(float(sum(map(float, counts))), 1.0)
    return table


def _refuse_other_shapes(answers: Sequence[Sequence[tuple[int, ...]]]) -> None:
    """An error where the models do not answer alike."""
    for of_batch in zip(*answers, strict=True):
        shapes = sorted(set(of_batch))
        if len(shapes) > 1:
            raise ValueError(
                f"The models' outputs have different shapes, such as {list(shapes[0])} and {list(shapes[1])}: they "
                "do not tell the same classes apart."
            )


def _summary(tables: list[Tensor], batches: Sequence[Inputs]) -> Pairwise:
    values = torch.stack([_mean(table) for table in tables])
    error = float(values.std()) / math.sqrt(len(tables)) if len(tables) > 1 else _jackknife(tables[0])
    return Pairwise(float(values.mean()), error, tables, sum(batch_size(batch) for batch in batches))


def _mean(table: Tensor) -> Tensor:
    return table.sum() / (len(table) * (len(table) - 1))


def _jackknife(table: Tensor) -> float:
    """Pairs share models, so the spread of pairs is not their error; leaving out a model at a time is."""
    models = len(table)
    if models < 3:
        return math.nan
    kept = [torch.tensor([j for j in range(models) if j != i]) for i in range(models)]
    without = torch.stack([_mean(table[rows][:, rows]) for rows in kept])
    return math.sqrt((models - 1) / models * float((without - without.mean()).square().sum()))


def _class_dim(logits: Tensor, dim: int | None) -> int:
    found = dim if dim is not None else (-1 if logits.ndim <= 3 else 1)
    if logits.ndim < 2 or logits.shape[found] < 2:
        raise ValueError(
            f"The output has shape {list(logits.shape)}: no two classes to choose from. For a yes-or-no output write "
            "output=lambda out: torch.stack([torch.zeros_like(out), out], -1)."
        )
    return found
