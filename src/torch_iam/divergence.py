r"""How far apart two outputs are: D(clean, perturbed), one value for every position.

A position is what the expectation runs over: an example, a token, a pixel. Every divergence here is a
Kullback-Leibler divergence KL(p || q) with p at theta and q at theta + delta, computed in float32 or
better whatever the model computes in: between two close distributions bfloat16 leaves only noise.
Any callable ``(clean, perturbed) -> Tensor`` serves in their place: a scalar is read as the mean over
the batch, anything else as one value a position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_iam.guards import no_autocast
from torch_iam.inputs import Inputs
from torch_iam.options import above_zero
from torch_iam.positions import Mask, chosen_by, fits, silenced
from torch_iam.softmax import EXCLUDED, finite, precise, softmax_kl

Divergence: TypeAlias = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class CategoricalKL:
    r"""KL between two categorical distributions given by logits, a value for every position.

    .. math:: \mathrm{KL}(p\,\|\,q) = \sum_c p_c\,(\log p_c - \log q_c), \qquad p = \mathrm{softmax}(z/T)

    Args:
        dim: the class dimension. By default the last one of ``[B, C]`` and ``[B, T, V]`` and the second
            one of ``[B, C, H, W]``.
        temperature: T, which divides the logits.
        mask: which positions count: a key of dict inputs (used where it is there and has the shape of
            the positions), a function of the inputs, or None for all of them. Of an encoder with a decoder the
            default is ``decoder_attention_mask``.

    Shapes: clean and perturbed ``[B, C]``, ``[B, T, V]`` or ``[B, C, H, W]``; result without the class
    dimension.

    >>> p, q = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> CategoricalKL()(p, q)
    tensor([0.1201])
    """

    dim: int | None = None
    temperature: float = 1.0
    mask: Mask = "attention_mask"

    def __post_init__(self) -> None:
        above_zero("temperature", self.temperature)

    def __call__(self, clean: Tensor, perturbed: Tensor) -> Tensor:
        """KL at every position."""
        return softmax_kl(clean, perturbed, self.class_dimension(clean), self.temperature)

    def class_dimension(self, logits: Tensor) -> int:
        """The dimension that the distributions are over, which has two classes or more."""
        dim = self.dim if self.dim is not None else (-1 if logits.ndim <= 3 else 1)
        if (self.dim is None and logits.ndim < 2) or logits.shape[dim] < 2:
            raise ValueError(
                f"The output has shape {list(logits.shape)}: no two classes to choose from, and a softmax over one "
                "is constant. Write divergence=BernoulliKL() for a yes-or-no output, GaussianKL() for a number."
            )
        return dim


@dataclass(frozen=True)
class BernoulliKL:
    r"""KL between independent yes-or-no labels given by logits, summed over the labels of an example.

    .. math:: \mathrm{KL} = \sum_l p_l \log\frac{p_l}{q_l} + (1 - p_l) \log\frac{1 - p_l}{1 - q_l},
        \qquad p = \mathrm{sigmoid}(z)

    Args:
        mask: which positions of an example count, for outputs ``[B, T, ...]``; see :class:`CategoricalKL`.

    Shapes: clean and perturbed ``[B]`` or ``[B, L, ...]``; result ``[B]``.

    >>> BernoulliKL()(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]))
    tensor([0.1201])
    """

    mask: Mask = "attention_mask"
    per_example: ClassVar[bool] = True

    def __call__(self, clean: Tensor, perturbed: Tensor) -> Tensor:
        """KL of every example."""
        return _sum_but_first(softmax_kl(_yes_and_no(clean), _yes_and_no(perturbed), dim=0))


@dataclass(frozen=True)
class GaussianKL:
    r"""KL between two Gaussians with the outputs as means and one fixed standard deviation (regression).

    .. math:: \mathrm{KL} = \frac{\|\mu - \mu'\|^2}{2 \sigma^2}

    Args:
        sigma: the standard deviation.
        mask: which positions of an example count, for outputs ``[B, T, ...]``; see :class:`CategoricalKL`.

    Shapes: clean and perturbed ``[B]`` or ``[B, D, ...]``; result ``[B]``.

    >>> GaussianKL(sigma=2.0)(torch.zeros(1, 2), torch.tensor([[2.0, 0.0]]))
    tensor([0.5000])
    """

    sigma: float = 1.0
    mask: Mask = "attention_mask"
    per_example: ClassVar[bool] = True

    def __post_init__(self) -> None:
        above_zero("sigma", self.sigma)

    def __call__(self, clean: Tensor, perturbed: Tensor) -> Tensor:
        """KL of every example."""
        return _sum_but_first((precise(clean) - precise(perturbed)).square()) / (2 * self.sigma**2)


@dataclass(frozen=True)
class SimilarityKL:
    r"""KL between the rows of two similarity matrices: what contrastive learning outputs.

    Row i is the distribution over the other projections of the batch that NT-Xent trains on,

    .. math:: p_{ij} \propto \exp(\cos(z_i, z_j) / \tau), \qquad j \ne i.

    Args:
        temperature: tau of the contrastive loss.
        axis: ``"similarity"`` compares these rows; ``"projection"`` compares softmax(z_i / tau) over the
            coordinates of each projection instead.

    Shapes: clean and perturbed ``[B, D]`` projections; result ``[B]``.

    >>> z = torch.eye(3)
    >>> SimilarityKL()(z, z)
    tensor([0., 0., 0.])
    """

    temperature: float = 0.5
    axis: str = "similarity"

    def __post_init__(self) -> None:
        if self.axis not in ("similarity", "projection"):
            raise ValueError(f"axis must be 'similarity' or 'projection', found {self.axis!r}.")
        above_zero("temperature", self.temperature)

    def __call__(self, clean: Tensor, perturbed: Tensor) -> Tensor:
        """KL of every row."""
        rows = self._similarities if self.axis == "similarity" else precise
        return CategoricalKL(dim=-1, temperature=self.temperature)(rows(clean), rows(perturbed))

    def _similarities(self, projections: Tensor) -> Tensor:
        unit = F.normalize(precise(projections), dim=-1)
        itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
        with no_autocast(unit.device):  # which would multiply in low precision
            return (unit @ unit.T).masked_fill(itself, EXCLUDED)


@dataclass(frozen=True)
class Total:
    """A sum over positions and their number, so that batches of any size average rightly.

    The sum is a tensor without a dimension, and so is a number that a mask decides: reading it would stall a GPU.
    """

    value: Tensor
    count: Tensor | int

    @property
    def number(self) -> Tensor:
        """The number of positions as a tensor beside the value."""
        return self.value.new_full((), self.count) if isinstance(self.count, int) else self.count

    @property
    def divisor(self) -> Tensor | int:
        """The number of positions, and 1 where there is none."""
        return max(self.count, 1) if isinstance(self.count, int) else self.count.clamp(min=1)

    @property
    def mean(self) -> Tensor:
        """Value of an average position; 0 where there is none."""
        return self.value / self.divisor

    def detach(self) -> Total:
        """The same numbers without their graph."""
        return Total(self.value.detach(), self.count)


def total(divergence: Divergence, clean: Tensor, perturbed: Tensor, inputs: Inputs | None = None) -> Total:
    """Sum of the divergence over the positions that count, and how many these are."""
    mask = getattr(divergence, "mask", None)
    chosen = chosen_by(mask, inputs)
    if chosen is not None and chosen.ndim > 1 and getattr(divergence, "per_example", False):
        perturbed, chosen = silenced(mask, chosen, clean, perturbed), None
    values = divergence(clean, perturbed)
    if not isinstance(values, Tensor):
        raise TypeError(f"The divergence must return a tensor, found {type(values).__name__}.")
    if values.ndim == 0:
        count = clean.shape[0] if clean.ndim else 1
        return Total(values * count, count)
    if chosen is None or not fits(mask, chosen, values):
        return Total(values.sum(), values.numel())
    return Total(torch.where(chosen, values, torch.zeros_like(values)).sum(), chosen.sum().to(values.dtype))


def slope_at(
    divergence: Divergence, clean: Tensor, perturbed: Tensor, inputs: Inputs | None = None
) -> tuple[Total, Tensor]:
    r"""The sum of D(z, z') over the positions that count, and its derivative in z'.

    For :class:`CategoricalKL` that is :math:`q - p` at every position.

    Shapes: clean and perturbed ``[B, ...]``; the derivative likewise, in single precision or better.

    >>> slope_at(CategoricalKL(), torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]))[1]
    tensor([[-0.2311,  0.2311]])
    """
    with torch.enable_grad():
        at = precise(perturbed.detach()).requires_grad_()
        part = total(divergence, precise(clean), at, inputs)
        (slope,) = torch.autograd.grad(part.value, at)
    return part.detach(), slope


def curvature_product(
    divergence: Divergence, logits: Tensor, pushed: Tensor, inputs: Inputs | None = None
) -> tuple[Tensor, Tensor]:
    r"""The second derivative of D(z, z') in z' at z' = z, times a vector, and the number of positions.

    For :class:`CategoricalKL` it is :math:`(\mathrm{diag}(p) - p p^\top)\, u` at every position.

    Shapes: logits and pushed ``[B, ...]``; result likewise, in single precision or better and summed over no
    position, and a scalar.

    >>> curvature_product(CategoricalKL(), torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))[0]
    tensor([[ 0.2500, -0.2500]])
    """
    with torch.enable_grad():
        at = precise(logits.detach()).requires_grad_()
        part = total(divergence, precise(logits.detach()), at, inputs)
        (first,) = torch.autograd.grad(part.value, at, create_graph=True)
        (second,) = torch.autograd.grad(first, at, pushed.to(first.dtype))
    return second, part.number.detach()


def _yes_and_no(logits: Tensor) -> Tensor:
    """A label as two classes: the logits of yes, and of no, which are 0; ``[2, ...]``."""
    yes = finite(logits)
    return torch.stack([yes, torch.zeros_like(yes)])


def _sum_but_first(values: Tensor) -> Tensor:
    return values.flatten(1).sum(1) if values.ndim > 1 else values
