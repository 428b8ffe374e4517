"""Divergences against torch.distributions, and the laws of a divergence."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Normal, kl_divergence
from torch.nn import functional as F

import torch_iam as iam
from torch_iam.divergence import total

ALL: list[Any] = [
    iam.CategoricalKL(),
    iam.CategoricalKL(temperature=0.5),
    iam.BernoulliKL(),
    iam.GaussianKL(0.7),
    iam.SimilarityKL(),
    iam.SimilarityKL(axis="projection"),
]
seeds = st.integers(0, 2**31)


def pair(seed: int, shape: tuple[int, ...] = (5, 4), size: float = 2.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(size * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in "pq")  # type: ignore[return-value]


@hypothesis.given(seeds)
def test_against_torch_distributions(seed: int) -> None:
    p, q = pair(seed)
    expected = kl_divergence(Categorical(logits=p), Categorical(logits=q))
    assert torch.allclose(iam.CategoricalKL()(p, q), expected, rtol=1e-10)
    expected = kl_divergence(Bernoulli(logits=p), Bernoulli(logits=q)).sum(1)
    assert torch.allclose(iam.BernoulliKL()(p, q), expected, rtol=1e-9)
    expected = kl_divergence(Normal(p, 0.7), Normal(q, 0.7)).sum(1)
    assert torch.allclose(iam.GaussianKL(0.7)(p, q), expected, rtol=1e-10)


@hypothesis.given(seeds)
@pytest.mark.parametrize("divergence", ALL, ids=str)
def test_positive_zero_only_at_home_and_stationary_there(divergence: Any, seed: int) -> None:
    p, q = pair(seed)
    assert (divergence(p, q) > 0).all()
    at = p.clone().requires_grad_()
    value = divergence(p, at).sum()
    assert float(value.detach()) == pytest.approx(0, abs=1e-12)
    (slope,) = torch.autograd.grad(value, at)
    assert slope.abs().max() < 1e-12


@hypothesis.given(seeds)
def test_similarity_rows_are_those_of_the_contrastive_loss(seed: int) -> None:
    """Row i: softmax of the cosines to all others over the temperature, built here the slow way."""
    p, q = pair(seed, (6, 3))

    def rows(z: Tensor) -> Tensor:
        cosine = torch.stack([torch.stack([F.cosine_similarity(a, b, dim=0) for b in z]) for a in z])
        kept = [[float(cosine[i, j]) for j in range(len(z)) if j != i] for i in range(len(z))]
        return torch.tensor(kept, dtype=z.dtype) / 0.5

    expected = kl_divergence(Categorical(logits=rows(p)), Categorical(logits=rows(q)))
    assert torch.allclose(iam.SimilarityKL(0.5)(p, q), expected, rtol=1e-9, atol=1e-12)


def test_low_precision_logits_are_compared_in_single_precision() -> None:
    p = torch.randn(4, 10, dtype=torch.bfloat16)
    value = iam.CategoricalKL()(p, p + 0.01)
    assert value.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_similarities_are_in_single_precision_under_autocast(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    clean, step = torch.randn(2, 64, 16, generator=draw)
    exact = iam.SimilarityKL()(clean, clean + 1e-3 * step)
    with torch.autocast("cpu", dtype=dtype):
        found = iam.SimilarityKL()(clean, clean + 1e-3 * step)
    torch.testing.assert_close(found, exact)


@pytest.mark.parametrize("shape", [(4, 3), (4, 6, 3)])
def test_class_dimension_of_vectors_and_tokens_is_the_last(shape: tuple[int, ...]) -> None:
    p, q = pair(0, shape)
    assert iam.CategoricalKL()(p, q).shape == shape[:-1]


def test_class_dimension_of_images_is_the_second_unless_said() -> None:
    p, q = pair(0, (2, 3, 4, 5))
    assert iam.CategoricalKL()(p, q).shape == (2, 4, 5)
    assert iam.CategoricalKL(dim=-1)(p, q).shape == (2, 3, 4)


def test_a_class_that_is_masked_out_has_probability_zero() -> None:
    """-inf among the logits is a way to say so, and neither the value nor the slope may become NaN."""
    p, q = pair(0)
    q.requires_grad_()
    impossible = torch.arange(4) == 2
    found = iam.CategoricalKL()(p.masked_fill(impossible, -torch.inf), q.masked_fill(impossible, -torch.inf))
    expected = iam.CategoricalKL()(p[:, ~impossible], q[:, ~impossible])
    assert torch.allclose(found, expected)
    slopes = [torch.autograd.grad(values.sum(), q)[0] for values in (found, expected)]
    assert torch.allclose(*slopes)


def test_nan_is_not_taken_for_a_masked_class() -> None:
    p, q = pair(0)
    assert bool(iam.CategoricalKL()(p, q.index_fill(1, torch.tensor([1]), torch.nan)).isnan().all())


def test_errors() -> None:
    p, q = pair(0)
    for make in (iam.CategoricalKL, iam.SimilarityKL):
        with pytest.raises(ValueError, match="temperature must be a finite number above 0, found 0"):
            make(temperature=0.0)
    with pytest.raises(ValueError, match="sigma must be a finite number above 0, found nan"):
        iam.GaussianKL(sigma=float("nan"))
    for shape in ((5,), (5, 1)):
        with pytest.raises(
            ValueError, match=r"no two classes to choose from.*BernoulliKL\(\).*GaussianKL\(\)"
        ):
            iam.CategoricalKL()(*pair(0, shape))
    with pytest.raises(ValueError, match="axis must be 'similarity' or 'projection', found 'x'"):
        iam.SimilarityKL(axis="x")
    with pytest.raises(TypeError, match="must return a tensor, found float"):
        total(lambda a, b: 1.0, p, q)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match=r"The mask has shape \(2,\), the divergence \(5,\)"):
        total(iam.CategoricalKL(mask=lambda _: torch.ones(2)), p, q, p)
