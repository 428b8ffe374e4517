"""Disagreement and inconsistency of several models."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Iterator

import pytest
import torch
from tests.cases import CASES
from tests.oracles import dense
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import torch_iam as iam


def models(count: int = 4) -> list[nn.Module]:
    return [CASES[1].model(seed) for seed in range(count)]


def outputs(found: list[nn.Module], x: Tensor) -> list[Tensor]:
    with torch.no_grad():
        return [copy.deepcopy(model).eval()(x) for model in found]


def test_against_the_definitions_over_unequal_batches() -> None:
    found, x = models(), CASES[1].inputs(11)
    parts = [x[:1], x[1:6], x[6:]]
    z = outputs(found, x)
    pairs = [(a, b) for a in z for b in z if a is not b]
    kl = [
        F.kl_div(b.log_softmax(1), a.log_softmax(1), log_target=True, reduction="batchmean") for a, b in pairs
    ]
    measured = iam.inconsistency(found, parts)
    assert measured.value == pytest.approx(float(torch.stack(kl).mean()), rel=1e-10)
    assert measured.inputs == 11
    differs = [(a.argmax(1) != b.argmax(1)).double().mean() for a, b in pairs]
    measured = iam.disagreement(found, x, batch_size=4)
    assert measured.value == pytest.approx(float(torch.stack(differs).mean()))
    assert torch.equal(measured.pairs[0], measured.pairs[0].T)


def test_several_data_splits_are_averaged() -> None:
    one, two, x = models(3), models(5)[3:], CASES[1].inputs(9)
    both = iam.inconsistency([one, two], x)
    alone = [iam.inconsistency(split, x).value for split in (one, two)]
    assert both.value == pytest.approx(sum(alone) / 2)
    assert both.stderr == pytest.approx(abs(alone[0] - alone[1]) / 2)
    assert [len(table) for table in both.pairs] == [3, 2]


def test_models_are_left_as_they_were_and_may_come_one_by_one() -> None:
    found, x = models(3), CASES[1].inputs(6)
    before = [copy.deepcopy(model.state_dict()) for model in found]
    torch.manual_seed(4)
    stream = torch.get_rng_state()
    value = iam.inconsistency((model for model in found), x).value
    assert value == iam.inconsistency(found, x).value
    assert torch.equal(stream, torch.get_rng_state())
    for model, state in zip(found, before, strict=True):
        assert model.training
        assert all(
            torch.equal(a, b) for a, b in zip(model.state_dict().values(), state.values(), strict=True)
        )


def test_the_error_is_that_of_the_mean_over_models() -> None:
    values = [iam.disagreement([nn.Linear(3, 4) for _ in range(6)], torch.randn(200, 3)) for _ in range(60)]
    spread = float(torch.tensor([found.value for found in values]).std())
    claimed = float(torch.tensor([found.stderr for found in values]).mean())
    assert 0.5 < claimed / spread < 2
    assert math.isnan(iam.disagreement(models(2), CASES[1].inputs(4)).stderr)


def test_relation_to_the_trace_of_the_fisher_matrix() -> None:
    """With weights from N(theta, s² I) the inconsistency is s² Tr(F), within its standard error."""
    model = CASES[0].model()
    x, s = CASES[0].inputs(32), 1e-3
    theta = parameters_to_vector(model.parameters()).detach()
    generator = torch.Generator().manual_seed(7)
    drawn = []
    for _ in range(24):
        other = copy.deepcopy(model)
        noise = torch.randn(len(theta), generator=generator, dtype=theta.dtype)
        vector_to_parameters(theta + s * noise, other.parameters())
        drawn.append(other)
    found = iam.inconsistency(drawn, x)
    exact = s**2 * float(dense.fisher(copy.deepcopy(model).eval(), x).trace())
    measured = s**2 * float(iam.fisher_trace(model, x, tolerance=1e-3, max_matvecs=10_000))
    assert measured == pytest.approx(exact, rel=5e-3)
    assert 0.01 < found.stderr / found.value < 0.2
    assert abs(found.value - exact) < 3 * found.stderr


def test_errors() -> None:
    x = CASES[1].inputs(4)
    with pytest.raises(ValueError, match="two models trained on the same data, found 1"):
        iam.inconsistency(models(1), x)
    with pytest.raises(ValueError, match="2 models beside 1 groups"):
        iam.inconsistency([*models(2), models(2)], x)  # type: ignore[list-item]
    with pytest.raises(FloatingPointError, match="NaN or infinite in batch 1 of 2"):
        iam.disagreement(models(2), [x, x * torch.nan])
    with pytest.raises(ValueError, match="no batch"):
        iam.disagreement(models(2), [])


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 5), nn.Linear(5, 4)

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.head(self.embed(ids))


def test_padded_positions_count_for_neither() -> None:
    torch.manual_seed(0)
    models = [Tokens().double() for _ in range(3)]
    ids = torch.randint(0, 9, (4, 6))
    mask = (torch.arange(6) < torch.tensor([[6], [3], [1], [4]])).long()
    padded = {"ids": ids, "attention_mask": mask}
    short = [
        {"ids": row[None, :n], "attention_mask": torch.ones(1, n).long()}
        for row, n in zip(ids, mask.sum(1).tolist(), strict=True)
    ]
    for measure in (iam.disagreement, iam.inconsistency):
        assert measure(models, padded).value == pytest.approx(measure(models, short).value)
    assert iam.disagreement(models, padded).value != iam.disagreement(models, padded, mask=None).value


def test_what_cannot_disagree_is_refused() -> None:
    with pytest.raises(ValueError, match="no two classes to choose from"):
        iam.disagreement([nn.Linear(2, 1), nn.Linear(2, 1)], torch.randn(3, 2))
    with pytest.raises(ValueError, match=r"different shapes, such as \[3, 3\] and \[3, 5\]"):
        iam.disagreement([nn.Linear(2, 3), nn.Linear(2, 5)], torch.randn(3, 2))
    with pytest.raises(ValueError, match="a mask says yes or no for every position"):
        iam.disagreement([nn.Linear(2, 3)] * 2, torch.randn(3, 2), mask=lambda _: torch.ones(7))


def test_of_an_iterator_of_models_only_their_choices_are_kept() -> None:
    given: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def made() -> Iterator[nn.Module]:
        for _ in range(4):
            alive.append(sum(logits() is not None for logits in given))
            model = nn.Linear(2, 3)
            model.register_forward_hook(lambda _module, _inputs, logits: given.append(weakref.ref(logits)))
            yield model

    iam.disagreement(made(), torch.randn(5, 2))
    assert len(given) == 4
    assert alive[-1] <= 1  # those of the last model, on their way out
