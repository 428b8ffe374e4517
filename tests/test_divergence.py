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


def test_a_total_counts_positions() -> None:
    p, q = pair(0, (2, 3, 4))
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    part = total(iam.CategoricalKL(), p, q, {"attention_mask": mask})
    expected = iam.CategoricalKL()(p, q)[mask.bool()]
    assert float(part.count) == 3
    assert torch.allclose(part.mean, expected.mean())
    everything = total(iam.CategoricalKL(), p, q, {"attention_mask": torch.ones(2, 9)})
    assert float(everything.count) == 6  # a mask of another shape is about something else
    chosen = total(iam.CategoricalKL(mask=lambda inputs: inputs > 0), p, q, mask)
    assert torch.allclose(chosen.mean, expected.mean())
    nothing = total(iam.CategoricalKL(), p, q, {"attention_mask": torch.zeros(2, 3)})
    assert float(nothing.mean) == 0


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


def confident(loss: float) -> tuple[Tensor, Tensor]:
    """Logits of ten classes whose most likely one has a cross-entropy of about ``loss``, and others close by."""
    draw = torch.Generator().manual_seed(0)
    clean = torch.randn(64, 10, generator=draw, dtype=torch.float64)
    clean[:, 0] += torch.logsumexp(clean[:, 1:], 1) - clean[:, 0] - torch.tensor(loss).expm1().log()
    return clean, clean + 0.1 * torch.randn(64, 10, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("loss", [1e-1, 1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("divergence", [iam.CategoricalKL(), iam.BernoulliKL()], ids=str)
def test_single_precision_is_enough_for_a_confident_network(divergence: Any, loss: float) -> None:
    """Value and both slopes to nearly the digits of the logits, which are the same numbers here."""
    clean, perturbed = (logits.float() for logits in confident(loss))
    found, exact = [], []
    for dtype, into in ((torch.float32, found), (torch.float64, exact)):
        at = [logits.to(dtype).requires_grad_() for logits in (clean, perturbed)]
        values = divergence(*at)
        into += [values.detach(), *torch.autograd.grad(values.sum(), at)]
    assert bool((found[0] > 0).all())
    for mine, wanted in zip(found, exact, strict=True):
        assert float((mine.double() - wanted).norm() / wanted.norm()) < 2e-5


@pytest.mark.parametrize("divergence", [iam.CategoricalKL(), iam.BernoulliKL()], ids=str)
def test_slopes_are_derivatives_twice_over(divergence: Any) -> None:
    at = [logits.requires_grad_() for logits in pair(0, (3, 4))]
    assert torch.autograd.gradcheck(divergence, at)
    assert torch.autograd.gradgradcheck(divergence, at)


def test_far_apart_where_a_ratio_overflows() -> None:
    p, q = torch.tensor([[200.0, 0.0]]), torch.tensor([[0.0, 200.0]], requires_grad=True)
    value = iam.CategoricalKL()(p, q)
    assert float(value.detach()) == pytest.approx(200)
    (slope,) = torch.autograd.grad(value.sum(), q)
    torch.testing.assert_close(slope, torch.tensor([[-1.0, 1.0]]))


@pytest.mark.parametrize("divergence", [iam.BernoulliKL(), iam.GaussianKL()], ids=str)
def test_padded_tokens_are_no_part_of_their_example(divergence: Any) -> None:
    p, q = pair(0, (2, 3, 4))
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    q.requires_grad_()
    part = total(divergence, p, q, {"attention_mask": mask})
    expected = [divergence(p[i : i + 1, :n], q[i : i + 1, :n]) for i, n in enumerate((2, 1))]
    torch.testing.assert_close(part.value, torch.stack(expected).sum())
    assert part.count == 2
    (slope,) = torch.autograd.grad(part.value, q)
    assert bool((slope.abs().sum(2) > 0).eq(mask > 0).all())
    alone = total(
        divergence, p[:, 0], q[:, 0], {"attention_mask": mask}
    )  # a mask over what is not in the output
    torch.testing.assert_close(alone.value, divergence(p[:, 0], q[:, 0]).sum())


def test_which_mask_is_that_of_the_output() -> None:
    p, q = pair(0, (2, 3, 4))
    encoder, decoder = torch.tensor([[1, 0, 0], [1, 0, 0]]), torch.tensor([[1, 1, 0], [1, 1, 1]])
    both = {"attention_mask": encoder, "decoder_attention_mask": decoder}
    assert float(total(iam.CategoricalKL(), p, q, both).count) == 5
    ids = {"attention_mask": encoder, "decoder_input_ids": torch.zeros(2, 3)}
    assert float(total(iam.CategoricalKL(), p, q, ids).count) == 6
    for zero_is_yes in (torch.zeros(2, 3), torch.full((2, 3), -torch.inf)):
        assert float(total(iam.CategoricalKL(), p, q, {"attention_mask": zero_is_yes}).count) == 0
    shares = {"attention_mask": encoder.float()}
    assert float(total(iam.CategoricalKL(), p, q, shares).count) == 2
