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
    for zero_is_yes in (torch.zeros(2, 3), torch.full((2, 3), -torch.inf)):
        assert float(total(iam.CategoricalKL(), p, q, {"attention_mask": zero_is_yes}).count) == 0
    shares = {"attention_mask": encoder.float()}
    assert float(total(iam.CategoricalKL(), p, q, shares).count) == 2
