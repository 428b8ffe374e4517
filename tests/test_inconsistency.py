"""The first door: what is measured, over what, and what is left behind."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.cases import CASES, Case, relative
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import torch_iam as iam
from torch_iam.objectives import reference

EAGER = [case for case in CASES if case.name != "compiled"]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", [{}, {"probe": "fisher"}, {"ascent": "projected"}], ids=str)
def test_the_model_is_left_as_it_was_found(case: Case, training: bool, options: dict[str, Any]) -> None:
    model = case.model()
    next(model.children()).eval()  # a mixed mode must come back too
    modes = [module.training for module in model.modules()]
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    before = copy.deepcopy(model.state_dict())
    stream = torch.get_rng_state()
    iam.local_inconsistency(model, case.inputs(), rho=0.1, steps=2, restarts=2, training=training, **options)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(stream, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(w.grad, torch.ones_like(w)) for w in model.parameters() if w.grad is not None)


@pytest.mark.parametrize("case", EAGER, ids=str)
def test_algorithm_1_equals_its_twin(case: Case) -> None:
    model = case.model().eval()
    generator = torch.Generator().manual_seed(0)
    ball = iam.Neighborhood(model, 0.1)
    drawn = dict(zip(ball.names, ball.draw(generator), strict=True))
    start = reference.flat(drawn[n] for n, w in model.named_parameters() if w.requires_grad)
    world = reference.World(model)
    deltas = [reference.ascent(world, case.inputs(), start, 0.1, k) for k in (1, 2, 3)]
    with torch.no_grad():
        clean = world.at(world.theta)(case.inputs())
        expected = [
            float(reference.mean_divergence(clean, world.at(world.theta + delta)(case.inputs())))
            for delta in deltas
        ]
    estimate = iam.local_inconsistency(model, case.inputs(), rho=0.1, steps=3, restarts=1)
    assert estimate.trace[0].tolist() == pytest.approx(expected, rel=1e-8)
    assert relative(reference.flat(estimate.direction.values()), deltas[-1]) < 1e-7
    assert math.isnan(estimate.stderr)
    assert str(estimate).startswith("S(0.1) = ")


@pytest.mark.parametrize("probe", ["divergence", "fisher"])
@pytest.mark.parametrize("case", [c for c in EAGER if c.name != "twin-biases"], ids=str)
def test_batches_of_any_size_average_exactly(case: Case, probe: str) -> None:
    model, x = case.model(), case.inputs(11)
    options: dict[str, Any] = {"rho": 0.2, "restarts": 2, "probe": probe}
    whole = iam.local_inconsistency(model, x, **options)
    for pieces in (x.split(4), [(part, None) for part in x.split([1, 7, 3])]):
        found = iam.local_inconsistency(model, list(pieces), **options)
        assert found.value == pytest.approx(whole.value, rel=1e-7)  # a start of 1e-8 |theta| rounds
        assert found.inputs == 11
    assert iam.local_inconsistency(model, x, batch_size=4, **options).value == pytest.approx(
        whole.value, rel=1e-7
    )


def test_loaders_generators_tuples_and_dicts() -> None:
    case = CASES[0]
    model, x, y = case.model(), case.inputs(10), case.targets(10)
    expected = iam.local_inconsistency(model, x, rho=0.1).value

    def generated() -> Iterator[Tensor]:
        yield from x.split(3)

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, *, pixels: Tensor, shift: float = 0.0) -> dict[str, Tensor]:
            return {"logits": self.inner(pixels + shift)}

    class Two(Named):
        def forward(self, pixels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            return self.inner(pixels * mask), mask

    @dataclass
    class Sample:
        image: Tensor

    loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    given: list[tuple[nn.Module, Any, dict[str, Any]]] = [
        (model, loader, {}),
        (model, generated(), {}),
        (Named(), {"pixels": x}, {}),
        (Named(), [{"pixels": x[:3], "labels": y[:3]}, {"pixels": x[3:], "labels": y[3:]}], {}),
        (Two(), (x, torch.ones_like(x)), {}),
        (model, [Sample(x)], {"inputs_of": lambda sample: sample.image}),
        (Named(), {"pixels": x}, {"output": lambda out: out["logits"]}),
    ]
    for network, data, options in given:
        found = iam.local_inconsistency(network, data, rho=0.1, **options)
        assert found.value == pytest.approx(expected, rel=1e-9)
        assert found.inputs == 10


def test_a_shuffling_loader_moves_no_random_stream() -> None:
    case = CASES[0]
    loader = DataLoader(TensorDataset(case.inputs(10), case.targets(10)), batch_size=4, shuffle=True)
    model = case.model()
    before = torch.get_rng_state()
    iam.local_inconsistency(model, loader, rho=0.1)
    assert torch.equal(before, torch.get_rng_state())


def test_pytorchs_encoder_is_measured_in_evaluation_mode() -> None:
    """Its fast path answers otherwise than the path with a gradient: padded positions are 0 there."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    tokens = {"src": torch.randn(2, 5, 8), "src_key_padding_mask": padding}
    assert iam.local_inconsistency(encoder, tokens, rho=0.1).value > 0
    assert torch.backends.mha.get_fastpath_enabled()


def test_padding_does_not_count() -> None:
    """Masked tokens change nothing, whatever stands there, also when batches hold different numbers."""
    torch.manual_seed(0)

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            return self.head(torch.tanh(self.embed(input_ids)))

    model = Tagger().double()
    tokens = torch.randint(0, 9, (4, 6))
    mask = torch.tensor([[1] * 6, [1] * 2 + [0] * 4, [1] * 5 + [0], [1] * 3 + [0] * 3])
    other = torch.where(mask.bool(), tokens, (tokens + 1) % 9)
    expected = iam.local_inconsistency(model, {"input_ids": tokens, "attention_mask": mask}, rho=0.3)
    changed = iam.local_inconsistency(model, {"input_ids": other, "attention_mask": mask}, rho=0.3)
    assert changed.value == expected.value
    halves = [{"input_ids": tokens[i : i + 1], "attention_mask": mask[i : i + 1]} for i in range(4)]
    assert iam.local_inconsistency(model, halves, rho=0.3).value == pytest.approx(expected.value, rel=1e-9)
    ignored = iam.CategoricalKL(mask=None)
    both = [
        iam.local_inconsistency(
            model, {"input_ids": ids, "attention_mask": mask}, rho=0.3, divergence=ignored
        ).value
        for ids in (tokens, other)
    ]
    assert both[0] != both[1]


def test_transformers_outputs() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=3,
    )
    model = transformers.BertForSequenceClassification(config).double()
    batch = transformers.BatchEncoding(
        {
            "input_ids": torch.randint(0, 20, (6, 5)),
            "attention_mask": torch.tensor([[1, 1, 1, 1, 1]] * 3 + [[1, 1, 1, 0, 0]] * 3),
        }
    )
    for probe in ("divergence", "fisher"):
        estimate = iam.local_inconsistency(model, batch, rho=0.1, restarts=2, probe=probe)
        assert estimate.value > 0
    step = iam.IAMD(model.train(), rho=0.1).backward(
        dict(batch), torch.zeros(6).long(), lambda out, y: nn.functional.cross_entropy(out.logits, y)
    )
    assert step.outputs.logits.shape == (6, 3)
    assert bool(step.inconsistency > 0)


def test_segmentation_regression_and_multi_label_heads() -> None:
    torch.manual_seed(0)
    images = torch.randn(4, 2, 5, 5).double()
    pixels = nn.Conv2d(2, 3, 3, padding=1).double()
    logits = pixels(images)
    assert iam.CategoricalKL()(logits, logits).shape == (4, 5, 5)
    assert iam.local_inconsistency(pixels, images, rho=0.1).value > 0
    linear, x = nn.Linear(3, 2).double(), torch.randn(9, 3).double()
    squared = iam.local_inconsistency(linear, x, rho=0.1, steps=150, divergence=iam.GaussianKL())
    inputs = torch.cat([x, torch.ones(9, 1).double()], 1)
    top = torch.linalg.eigvalsh(inputs.T @ inputs / 9)[-1]
    assert squared.value == pytest.approx(0.5 * 0.01 * float(top), rel=1e-9)
    assert iam.local_inconsistency(linear, x, rho=0.1, divergence=iam.BernoulliKL()).value > 0

    def mean_squares(clean: Tensor, moved: Tensor) -> Tensor:
        return 0.5 * (clean - moved).square().sum(1).mean()

    for data in (x, x.split([2, 7])):
        data = data if isinstance(data, Tensor) else list(data)
        found = iam.local_inconsistency(linear, data, rho=0.1, steps=150, divergence=mean_squares)
        assert found.value == pytest.approx(squared.value, rel=1e-9)


def test_restarts_best_trace_and_seed() -> None:
    case = CASES[0]
    model, x = case.model(), case.inputs()
    one = iam.local_inconsistency(model, x, rho=0.5, restarts=6, seed=1)
    two = iam.local_inconsistency(model, x, rho=0.5, restarts=6, seed=1)
    assert one.value == two.value
    finals = one.trace[:, -1]
    assert one.value == pytest.approx(float(finals.mean()), rel=1e-12)
    assert one.stderr == pytest.approx(float(finals.std() / math.sqrt(6)), rel=1e-9)
    assert one.best == pytest.approx(float(finals.max()), rel=1e-12)
    assert one.trace.shape == (6, 3)
    norm = math.sqrt(sum(float(part.square().sum()) for part in one.direction.values()))
    assert norm == pytest.approx(0.5, rel=1e-6)
    worst = iam.local_inconsistency(model, x, rho=0.5, restarts=6, seed=1, sign="worst")
    assert worst.value >= one.value
    projected = iam.local_inconsistency(model, x, rho=0.5, restarts=4, steps=200, ascent="projected", seed=1)
    assert projected.best >= worst.best * 0.999


def test_steps_converge_from_below_to_the_projected_ascent() -> None:
    case = CASES[0]
    model, x = case.model(), case.inputs(32)
    few, many = (iam.local_inconsistency(model, x, rho=0.01, steps=k, restarts=4) for k in (1, 200))
    check = iam.local_inconsistency(model, x, rho=0.01, steps=300, restarts=2, ascent="projected")
    assert few.value < many.value
    assert many.best == pytest.approx(check.best, rel=5e-3)


def test_training_mode_measures_batchnorm_on_the_batch() -> None:
    case = CASES[1]
    model, x = case.model(), case.inputs() * 3 + 5
    values = [iam.local_inconsistency(model, x, rho=0.1, training=t).value for t in (False, True)]
    assert values[0] != pytest.approx(values[1], rel=0.05)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (torch.randn(4, 4).double(), {"rho": 0.0}, "rho must be a finite number above 0, found 0.0"),
        (torch.randn(4, 4).double(), {"rho": float("nan")}, "rho must be"),
        (torch.randn(4, 4).double(), {"rho": 0.1, "steps": 0}, "steps must be an integer of 1 or more"),
        (torch.randn(4, 4).double(), {"rho": 0.1, "restarts": 0}, "restarts must be an integer of 1"),
        (torch.randn(4, 4).double(), {"rho": 0.1, "ascent": "newton"}, "ascent must be one of"),
        (torch.randn(4, 4).double(), {"rho": 0.1, "metric": "fisher"}, "metric must be one of"),
        (
            torch.full((4, 4), float("inf")).double(),
            {"rho": 0.1},
            "Batch 0: .*16 values that are NaN or infinite",
        ),
        (
            [torch.zeros(2, 4).double(), torch.zeros(2, 4).double() / 0],
            {"rho": 0.1},
            "Batch 1: .*8 values that",
        ),
        (torch.randn(4, 4).double(), {"rho": 0.1, "start_norm": -1.0}, "start_norm must be a finite number"),
        (torch.randn(4, 4).double(), {"rho": 0.1, "step_size": 0.1}, "step_size= is of ascent='projected'"),
        ([], {"rho": 0.1}, "hold no batch"),
        (torch.zeros(0, 4).double(), {"rho": 0.1}, "no examples"),
        (torch.zeros(4, 4).double(), {"rho": 0.1, "batch_size": 0}, "batch_size must be 1 or more, found 0"),
        (3, {"rho": 0.1}, "found int"),
        ([object()], {"rho": 0.1}, "Say what of it the model takes with inputs_of="),
    ],
)
def test_errors_that_teach(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        iam.local_inconsistency(CASES[0].model(), data, **options)


def test_a_model_that_answers_with_nan_is_named() -> None:
    model = nn.Linear(4, 3)
    nn.init.constant_(model.bias, torch.nan)
    with pytest.raises(ValueError, match="answers batch 0 with NaN at its own weights"):
        iam.local_inconsistency(model, torch.randn(2, 4), rho=0.1)
    with torch.inference_mode(), pytest.raises(RuntimeError, match="call it outside"):
        iam.local_inconsistency(model, torch.randn(2, 4), rho=0.1)


def test_outputs_without_logits_are_named() -> None:
    class Odd(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return OrderedDict(score=super().forward(x))

    with pytest.raises(TypeError, match=r"keys \['score'\].*output=lambda"):
        iam.local_inconsistency(Odd(4, 3), torch.randn(2, 4), rho=0.1)


def test_an_unusual_output_is_read_as_told() -> None:
    class Odd(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return OrderedDict(score=super().forward(x))

    odd, plain = Odd(4, 3), nn.Linear(4, 3)
    plain.load_state_dict(odd.state_dict())
    x, y = torch.randn(8, 4), torch.zeros(8).long()
    values = [
        iam.local_inconsistency(odd, x, rho=0.1, output=lambda out: out["score"]).value,
        iam.local_inconsistency(plain, x, rho=0.1).value,
    ]
    assert values[0] == values[1]
    step = iam.IAMD(odd, output=lambda out: out["score"]).backward(
        x, y, lambda out, y: nn.functional.cross_entropy(out["score"], y)
    )
    assert bool(step.inconsistency > 0)


def divergence_at(model: nn.Module, x: Tensor, direction: dict[str, Tensor]) -> float:
    there = {name: weight + direction[name] for name, weight in model.named_parameters()}
    with torch.no_grad():
        clean, moved = model(x), torch.func.functional_call(model, there, x)
    return float(iam.CategoricalKL()(clean, moved).mean())


def test_small_values_are_not_lost_in_single_precision() -> None:
    """The terms of a KL divergence are of first order in delta, and their sum is of second."""
    case = CASES[0]
    model = case.model().eval()
    x = case.inputs(64)
    single = copy.deepcopy(model).float()
    for rho in (1e-3, 1e-4):
        found = iam.local_inconsistency(single, x.float(), rho=rho, steps=10, restarts=1)
        assert found.value == pytest.approx(divergence_at(model, x, found.direction), rel=0.02)


def test_projected_ascent_reports_the_divergence_whatever_it_climbs() -> None:
    case = CASES[0]
    model = case.model().eval()
    options: dict[str, Any] = {"rho": 2.0, "ascent": "projected", "steps": 20, "restarts": 1}
    found = iam.local_inconsistency(model, case.inputs(), probe="fisher", **options)
    assert found.best == pytest.approx(divergence_at(model, case.inputs(), found.direction), rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_divergence_of_ones_own_gets_two_tensors_of_one_dtype(dtype: torch.dtype) -> None:
    model, x = nn.Linear(4, 3).to(dtype), torch.randn(8, 4, dtype=dtype)
    found = iam.local_inconsistency(
        model, x, rho=0.5, divergence=lambda p, q: (p.unsqueeze(1) @ q.unsqueeze(2)).square().mean()
    )
    assert found.value > 0


def test_half_precision_batches_may_come_in_any_order() -> None:
    """A batch that is certain of its answers has a slope far smaller than another's."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight.mul_(3)
        certain = (torch.linalg.svd(model.weight)[2][0] * 9).repeat(8, 1)
    batches = [certain, torch.randn(64, 4)]
    with torch.autocast("cpu", dtype=torch.float16):
        values = [iam.local_inconsistency(model, order, rho=0.5).value for order in (batches, batches[::-1])]
    assert values[0] == pytest.approx(values[1], rel=1e-2)
    assert values[0] > 0.01


def test_frozen_models_are_refused() -> None:
    model = nn.Linear(4, 3).requires_grad_(False)
    with pytest.raises(ValueError, match="No weight may move: the model has 2 parameters, 0 of them"):
        iam.local_inconsistency(model, torch.randn(2, 4), rho=0.1)


class Fails(nn.Module):
    """A slope that is NaN in every second backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.passes = nn.Linear(4, 3).double(), 0

    def forward(self, x: Tensor) -> Tensor:
        out = self.linear(x)
        if out.requires_grad:
            self.passes += 1
            if self.passes % 2:
                out.register_hook(lambda slope: slope * torch.nan)
        return out


def test_starts_that_fail_are_told() -> None:
    found = iam.local_inconsistency(Fails(), torch.randn(8, 4).double(), rho=0.5, steps=1, restarts=4)
    assert found.failed == 2
    assert "4 restarts, 2 of them failed" in str(found)
    assert found.trace[:, -1].count_nonzero() == 2
    dead = iam.local_inconsistency(nn.Linear(4, 3), torch.zeros(8, 4), rho=0.5, params=iam.named("weight"))
    assert dead.failed == dead.restarts
    assert dead.value == 0


def test_the_worse_side_is_measured() -> None:
    model, x = CASES[0].model(), CASES[0].inputs()
    options: dict[str, Any] = {"rho": 1.0, "steps": 1, "restarts": 1}
    differs = False
    for seed in range(6):
        either = iam.local_inconsistency(model, x, seed=seed, **options)
        mirrored = {name: -part for name, part in either.direction.items()}
        other = divergence_at(model.eval(), x, mirrored)
        worst = iam.local_inconsistency(model, x, seed=seed, sign="worst", **options)
        assert worst.value == pytest.approx(max(either.value, other), rel=1e-9)
        differs |= other > either.value
    assert differs


def test_a_loss_beside_the_logits_is_not_taken_for_them() -> None:
    class Tuple(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            out = super().forward(x)
            return out.square().mean(), out

    torch.manual_seed(0)
    model, x = Tuple(4, 3), torch.randn(8, 4)
    found = iam.local_inconsistency(model, x, rho=0.1)
    assert found.value == iam.local_inconsistency(model, x, rho=0.1, output=lambda out: out[1]).value


@pytest.mark.parametrize("options", [{}, {"probe": "fisher"}])
def test_progress_is_told(options: dict[str, Any]) -> None:
    case, told = CASES[0], list[tuple[int, float]]()
    found = iam.local_inconsistency(
        case.model(),
        case.inputs(),
        rho=0.1,
        steps=3,
        restarts=2,
        progress=lambda done, value: told.append((done, value)),
        **options,
    )
    assert [done for done, _ in told] == [1, 2, 3, 4, 5, 6]
    values = torch.tensor([value for _, value in told]).view(2, 3)[:, 1:]  # the first is where the start is
    torch.testing.assert_close(values.double(), found.trace[:, :2], rtol=1e-6, atol=0.0)
