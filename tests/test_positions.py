"""Which positions count: those that a mask over the output chooses, in whatever form it comes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.test_divergence import pair

import torch_iam as iam
from torch_iam.divergence import total


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
    added = torch.tensor([[0.0, 0.0, -torch.inf], [0.0, -1e9, -1e9]])
    assert float(total(iam.CategoricalKL(), p, q, {"attention_mask": added}).count) == 3
    none = torch.full((2, 3), -torch.inf)
    assert float(total(iam.CategoricalKL(), p, q, {"attention_mask": none}).count) == 0
    shares = {"attention_mask": encoder.float()}
    assert float(total(iam.CategoricalKL(), p, q, shares).count) == 2


@pytest.mark.parametrize("divergence", [iam.BernoulliKL, iam.GaussianKL])
def test_labels_are_no_positions_though_there_may_be_as_many(divergence: Any) -> None:
    p, q = pair(0, (2, 3))
    inputs = {"attention_mask": torch.tensor([[1, 1, 0], [1, 0, 0]])}
    torch.testing.assert_close(total(divergence(), p, q, inputs).value, divergence()(p, q).sum())
    one = divergence(mask=lambda found: found["attention_mask"])  # who says so means it
    assert float(total(one, p, q, inputs).value) < float(divergence()(p, q).sum())
    examples = divergence(mask=lambda found: torch.tensor([True, False]))
    part = total(examples, p, q, inputs)
    assert float(part.count) == 1
    torch.testing.assert_close(part.value, divergence()(p[:1], q[:1]).sum())
    with pytest.raises(ValueError, match="for every example, or for every position"):
        total(divergence(mask=lambda _: torch.ones(2, 5)), p, q, inputs)
