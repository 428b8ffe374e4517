"""N3 to N8 and N10: what every objective must leave as it was, and what it may rely on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.cases import CASES, Case, gradient, relative
from tests.objectives.table import RECIPES, Recipe, start_of, stepped
from torch import Tensor, nn
from torch.nn import functional as F

import torch_iam as iam
from torch_iam.inputs import logits_of
from torch_iam.objectives import reference

PERTURBING = [recipe for recipe in RECIPES if recipe.kind is not iam.Plain]
CARRIED = Recipe("iam-d-one-pass", iam.IAMD, {"rho": 0.1, "start": "carry"})
EVERY = [*RECIPES, CARRIED]
EAGER = [case for case in CASES if case.name != "compiled"]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("recipe", EVERY, ids=str)
def test_weights_keep_bits_and_storage(recipe: Recipe, case: Case) -> None:
    model = case.model()
    before = {n: (w.data_ptr(), w.detach().clone()) for n, w in model.named_parameters()}
    objective = recipe.objective(model)
    for _ in range(2):
        objective.backward(case.inputs(), case.targets(), case.criterion)
    for name, weight in model.named_parameters():
        assert weight.data_ptr() == before[name][0], name
        assert torch.equal(weight, before[name][1]), name


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("recipe", PERTURBING, ids=str)
def test_weights_come_back_when_a_pass_raises(recipe: Recipe, error: type[BaseException]) -> None:
    """An interrupt at every forward pass in turn, the last of which is never reached."""
    case = CASES[1]
    passes = 0
    for reached in range(12):
        model = case.model()
        before = copy.deepcopy(model.state_dict())
        calls = iter(range(100))

        def interrupt(*_: Any, calls: Any = calls, reached: int = reached) -> None:
            if next(calls) == reached:
                raise error("in the middle")

        model[0].register_forward_hook(interrupt)
        objective = recipe.objective(model)
        stream = torch.get_rng_state()
        try:
            objective.backward(case.inputs(), case.targets(), case.criterion)
        except error:
            passes += 1
        for name, weight in model.named_parameters():
            assert torch.equal(weight, before[name]), name
        assert all(type(w) is nn.Parameter for w in model.parameters())
        assert torch.equal(stream, torch.get_rng_state())
    assert passes >= 2


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("recipe", EVERY, ids=str)
def test_buffers_and_random_stream_move_as_in_a_plain_step(recipe: Recipe, case: Case) -> None:
    plain = case.model()
    torch.manual_seed(3)
    plain(case.inputs())
    stream = torch.get_rng_state()
    _, model, _ = stepped(recipe, case)
    assert torch.equal(stream, torch.get_rng_state())
    for (name, found), expected in zip(model.named_buffers(), plain.buffers(), strict=True):
        assert torch.equal(found, expected), name


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_divergence_at_zero_is_exactly_zero(case: Case) -> None:
    """N6: every pass of a step draws the same masks and sees the same buffers."""
    model = case.model()
    objective = iam.IAMD(model, rho=0.1, check=False)
    visit, clean = objective._clean(_batch(case))
    field = objective.maximizer.field(visit, clean)
    assert float(field.value(objective.ball.zeros())) == 0.0


@pytest.mark.parametrize("case", [case for case in CASES if case.random], ids=str)
def test_masks_are_new_in_every_step(case: Case) -> None:
    model = case.model()
    objective = iam.IAMD(model, rho=0.1, seed=0, check=False)
    outputs = [objective.backward(case.inputs(), case.targets(), case.criterion).outputs for _ in range(2)]
    assert not torch.equal(*outputs)


@pytest.mark.parametrize("case", EAGER, ids=str)
@pytest.mark.parametrize("recipe", PERTURBING, ids=str)
def test_delta_has_norm_rho(recipe: Recipe, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Tensor] = []
    original = iam.Neighborhood.moved

    def spy(self: iam.Neighborhood, delta: list[Tensor], *, leaf: bool) -> dict[str, Tensor]:
        found.append(self.lengths(delta))
        return original(self, delta, leaf=leaf)

    monkeypatch.setattr(iam.Neighborhood, "moved", spy)
    objective, _, _ = stepped(recipe, case)
    assert float((found[-1] / objective.ball.rho - 1).abs()) < 1e-6


class Flat(nn.Module):
    """An output without a gradient in its weights, or with one that is not finite."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.linear, self.factor = nn.Linear(4, 3), factor

    def forward(self, x: Tensor) -> Tensor:
        out = self.linear(x)
        return _Spoiled.apply(out, self.factor)


class _Spoiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g * ctx.factor, None


@pytest.mark.parametrize("factor", [0.0, float("nan"), float("inf")])
@pytest.mark.parametrize("recipe", [r for r in EVERY if r.kind is not iam.Plain], ids=str)
def test_a_failed_ascent_moves_nothing_and_is_counted(recipe: Recipe, factor: float) -> None:
    model = Flat(factor).double()
    objective = recipe.objective(model)
    moved: list[float] = []
    original = objective.ball.moved

    def spy(delta: list[Tensor], *, leaf: bool) -> dict[str, Tensor]:
        moved.append(float(objective.ball.lengths(delta)))
        return original(delta, leaf=leaf)

    objective.ball.moved = spy  # type: ignore[method-assign]
    x, y = torch.randn(8, 4).double(), torch.zeros(8).long()
    step = objective.backward(x, y, nn.CrossEntropyLoss())
    assert moved[-1] == 0.0
    assert not bool(step.perturbed)
    assert bool(step.finite)
    assert int(objective.failed_ascents) == 1
    if step.inconsistency is not None:
        assert float(step.inconsistency) == 0.0


def test_a_carried_direction_survives_a_failed_step() -> None:
    model = Flat(1.0).double()
    objective = iam.IAMD(model, rho=0.1, start="carry", check=False)
    x, y = torch.randn(8, 4).double(), torch.zeros(8).long()
    objective.backward(x, y, nn.CrossEntropyLoss())
    carried = [part.clone() for part in objective.maximizer.carried or []]
    model.factor = float("nan")
    objective.backward(x, y, nn.CrossEntropyLoss())
    assert all(torch.equal(a, b) for a, b in zip(carried, objective.maximizer.carried or [], strict=True))


def test_only_chosen_weights_move_and_only_their_norm_counts() -> None:
    case = CASES[2]
    model = case.model()
    chosen = iam.named("branch", "head.weight")
    objective = iam.IAMD(model, rho=0.1, params=chosen, check=False)
    assert objective.ball.names == ["branch.weight", "head.weight"]
    visit, clean = objective._clean(_batch(case))
    climb = objective.maximizer.find(visit, clean)
    assert float(objective.ball.lengths(climb.delta)) == pytest.approx(0.1, rel=1e-12)


def test_every_group_has_its_own_radius() -> None:
    case = CASES[0]
    model = case.model()
    groups = [{"params": iam.named("0."), "rho": 0.02}, {"params": iam.named("2.")}]
    objective = iam.IAMD(model, rho=0.3, params=groups, check=False)
    visit, clean = objective._clean(_batch(case))
    lengths = objective.ball.lengths(objective.maximizer.find(visit, clean).delta)
    assert lengths.tolist() == pytest.approx([0.02, 0.3], rel=1e-12)


@pytest.mark.parametrize("case", [case for case in EAGER if case.name != "stateful"], ids=str)
@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_sub_batches_are_independent(recipe: Recipe, case: Case) -> None:
    """N8: the gradient is the mean over sub-batches, each with its own start and its own batch."""
    model, alone = case.model(), case.model()
    x, y = case.inputs(8), case.targets(8)
    torch.manual_seed(3)
    recipe.objective(model, sub_batch=4).backward(x, y, case.criterion)
    objective = recipe.objective(alone)
    torch.manual_seed(3)
    for part in (slice(0, 4), slice(4, 8)):
        objective.backward(x[part], y[part], case.criterion, loss_scale=0.5)
    assert relative(gradient(model), gradient(alone)) < 1e-10


@pytest.mark.parametrize("wrap", [lambda z: z, lambda z: {"logits": z}, lambda z: SimpleNamespace(logits=z)])
def test_sub_batches_give_labelled_outputs_first(wrap: Callable[[Tensor], Any]) -> None:
    class Wrapped(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return wrap(super().forward(x))

    model = Wrapped(4, 3).double()
    x, u = torch.randn(8, 4).double(), torch.randn(4, 4).double()

    def criterion(answer: Any, targets: Tensor) -> Tensor:
        assert len(logits_of(answer)) == 2
        return F.cross_entropy(logits_of(answer), targets)

    step = iam.IAMD(model, sub_batch=2).backward(x, torch.zeros(8).long(), criterion, unlabeled=u)
    logits = logits_of(step.outputs)
    assert not logits.requires_grad
    assert torch.allclose(logits, logits_of(model(torch.cat([x, u]))))


def test_sub_batches_update_batchnorm_once_with_their_mean() -> None:
    case = CASES[1]
    model, reference = case.model(), case.model()
    x, y = case.inputs(8), case.targets(8)
    for recipe in RECIPES:
        recipe.objective(model, sub_batch=4).backward(x, y, case.criterion)
    means = [reference[0](x[part]).mean((0, 2, 3)) for part in (slice(0, 4), slice(4, 8))]
    expected = torch.zeros(4, dtype=torch.float64)
    for _ in RECIPES:
        expected = 0.9 * expected + 0.1 * torch.stack(means).mean(0)
    assert torch.allclose(model[1].running_mean, expected.detach(), rtol=1e-12)
    assert int(model[1].num_batches_tracked) == len(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_two_calls_add(recipe: Recipe) -> None:
    case = CASES[0]
    grads = []
    for calls in (1, 2):
        model = case.model()
        objective = recipe.objective(model)
        total = torch.zeros(())
        for _ in range(calls):
            objective.backward(case.inputs(), case.targets(), case.criterion)
            grads.append(gradient(model))
    del total
    one, _, two = grads
    if recipe.kind in (iam.Plain, iam.SAM, iam.ASAM):  # the others start from another place each time
        assert relative(two, 2 * one) < 1e-12
    else:
        model = case.model()
        objective = recipe.objective(model)
        objective.backward(case.inputs(), case.targets(), case.criterion)
        model.zero_grad()
        objective.backward(case.inputs(), case.targets(), case.criterion)
        assert relative(two, one + gradient(model)) < 1e-12


@pytest.mark.parametrize("case", [c for c in EAGER if c.random or c.batch_dependent], ids=str)
@pytest.mark.parametrize("recipe", EVERY, ids=str)
def test_a_resumed_run_goes_on_bit_for_bit(recipe: Recipe, case: Case, tmp_path: Any) -> None:
    """N10, through a file that holds no code."""

    def train(model: nn.Module, objective: iam.Objective, optimizer: Any, steps: range) -> None:
        for t in steps:
            optimizer.zero_grad()
            objective.backward(case.inputs(seed=t), case.targets(seed=t), case.criterion)
            optimizer.step()

    def fresh() -> tuple[nn.Module, iam.Objective, torch.optim.Optimizer]:
        model = case.model()
        return model, recipe.objective(model), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    whole = fresh()
    torch.manual_seed(7)
    train(*whole, range(6))

    first = fresh()
    torch.manual_seed(7)
    train(*first, range(3))
    state = [part.state_dict() for part in first]
    torch.save({"parts": state, "rng": torch.get_rng_state()}, tmp_path / "state.pt")
    second = fresh()
    loaded = torch.load(tmp_path / "state.pt", weights_only=True)
    for part, saved in zip(second, loaded["parts"], strict=True):
        part.load_state_dict(saved)
    torch.set_rng_state(loaded["rng"])
    train(*second, range(3, 6))
    for name, value in whole[0].state_dict().items():
        assert torch.equal(value, second[0].state_dict()[name]), name


def test_labels_smoothing_stays_out_of_the_divergence() -> None:
    case = CASES[0]
    values = []
    for smoothing in (0.0, 0.3):
        objective = iam.IAMD(case.model(), rho=0.1, seed=0, check=False)
        criterion = nn.CrossEntropyLoss(label_smoothing=smoothing)
        values.append(objective.backward(case.inputs(), case.targets(), criterion).inconsistency)
    assert torch.equal(*values)


def test_signs() -> None:
    """worst: never below the other side; ascent: the loss rises to first order; either: both occur."""
    case = CASES[0]
    x, y = case.inputs(), case.targets()
    rises = set()
    for seed in range(12):
        model = case.model()
        worst = iam.IAMD(model, rho=0.5, sign="worst", seed=seed, check=False)
        visit, clean = worst._clean(_batch(case))
        climb = worst.maximizer.find(visit, clean)
        field = worst.maximizer.field(visit, clean)
        assert field.value(climb.delta) >= field.value([-part for part in climb.delta])

        loss = case.criterion(model(x), y)
        slope = torch.autograd.grad(loss, worst.ball.weights)
        ascent = iam.IAMD(model, rho=0.5, sign="ascent", seed=seed, check=False)
        visit, clean = ascent._clean(_batch(case))
        found = ascent.maximizer.find(visit, clean, ascent._loss_gradient(visit, _batch(case)))
        assert sum((d * g).sum() for d, g in zip(found.delta, slope, strict=True)) > 0

        either = iam.IAMS(model, rho=0.5, seed=seed, check=False)
        found = either.maximizer.find(visit, clean)
        rises.add(bool(sum((d * g).sum() for d, g in zip(found.delta, slope, strict=True)) > 0))
    assert rises == {True, False}


def test_batch_fraction_climbs_on_the_first_part_alone() -> None:
    """The start and the direction are those of the first half; the penalty is over all."""
    case = CASES[1]
    model, half = case.model(), case.model()
    objective = iam.IAMD(model, rho=0.1, batch_fraction=0.5, seed=0, check=False)
    start = start_of(objective, model)
    visit, clean = objective._clean(_batch(case))
    found = objective.maximizer.find(visit, clean).delta
    expected = reference.ascent(reference.World(half), case.inputs()[:4], start, 0.1, 1)
    assert relative(reference.flat(found), expected) < 1e-10


def _batch(case: Case) -> Any:
    from torch_iam.objectives.base import Batch

    return Batch(case.inputs(), case.targets(), case.criterion)


def test_frozen_weights_get_no_gradient() -> None:
    case = next(case for case in CASES if case.name == "frozen")
    for recipe in EVERY:
        _, model, _ = stepped(recipe, case)
        assert model.body.weight.grad is None


def test_unmoved_trainable_weights_get_the_whole_gradient() -> None:
    """A weight that may not move still feels both sides of the penalty."""
    case = CASES[0]
    model = case.model()
    objective = iam.IAMD(model, rho=0.5, beta=5.0, params=iam.named("2."), check=False)
    objective.backward(case.inputs(), case.targets(), case.criterion)
    found = model[0].weight.grad.clone()
    model.zero_grad()
    F.cross_entropy(model(case.inputs()), case.targets(), label_smoothing=0.1).backward()
    assert relative(found, model[0].weight.grad) > 1e-4


@pytest.mark.parametrize("sign", ["worst", "ascent"])
@pytest.mark.parametrize("more", [{}, {"lean": True}, {"probe": "fisher"}], ids=str)
def test_signs_of_a_compiled_model(sign: str, more: dict[str, Any]) -> None:
    """A compiled graph gives its buffers away in the backward: none may be walked through twice."""
    case = next(case for case in CASES if case.name == "compiled")
    compiled, eager = case.model(), CASES[0].model()
    for model in (compiled, eager):
        objective = iam.IAMD(model, rho=0.5, sign=sign, seed=0, check=False, **more)
        objective.backward(case.inputs(), case.targets(), case.criterion)
    assert relative(gradient(compiled), gradient(eager)) < 1e-8


def test_what_is_shared_by_all_examples_is_not_concatenated() -> None:
    """Positions and a mask over tokens stand once in a batch, whatever its size; keys come in any order."""

    class Positioned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places, self.head = nn.Embedding(7, 5), nn.Embedding(6, 5), nn.Linear(5, 3)

        def forward(self, ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
            hidden = self.tokens(ids) + self.places(positions)
            return self.head((mask @ hidden).mean(1))

    ids, y = torch.randint(0, 7, (8, 6)), torch.zeros(3).long()
    shared = {"positions": torch.arange(6)[None], "mask": torch.eye(6).double()}
    inputs, more = {"ids": ids[:3], **shared}, {**shared, "ids": ids[3:]}
    model = Positioned().double()
    step = iam.IAMD(model).backward(inputs, y, F.cross_entropy, unlabeled=more)
    assert torch.allclose(step.outputs, model(ids, **shared))
    with pytest.raises(ValueError, match="must be the same"):
        iam.IAMD(model).backward(
            inputs, y, F.cross_entropy, unlabeled=more | {"positions": 5 - shared["positions"]}
        )


@dataclass(slots=True)
class Slotted:
    logits: Tensor
    layers: list[Tensor]


@dataclass
class Nested:
    inner: Slotted
    name: str = "answer"

    @property
    def logits(self) -> Tensor:
        return self.inner.logits


@pytest.mark.parametrize("nested", [False, True])
def test_answers_of_any_plain_class_are_cut_and_detached(nested: bool) -> None:
    class Answering(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            out = super().forward(x)
            answer = Slotted(out, [out + 1])
            return Nested(answer) if nested else answer

    def inside(answer: Any) -> Slotted:
        return answer.inner if nested else answer

    def criterion(answer: Any, targets: Tensor) -> Tensor:
        assert len(answer.logits) == len(inside(answer).layers[0]) == len(targets)
        return F.cross_entropy(answer.logits, targets)

    x, u = torch.randn(4, 4), torch.randn(6, 4)
    step = iam.IAMD(Answering(4, 3)).backward(x, torch.zeros(4).long(), criterion, unlabeled=u)
    found = inside(step.outputs)
    assert type(step.outputs) is (Nested if nested else Slotted)
    assert len(found.logits) == len(found.layers[0]) == 10
    assert not found.logits.requires_grad
    assert not found.layers[0].requires_grad


@pytest.mark.parametrize("padded", [False, True])
def test_pytorchs_encoder_in_evaluation_mode_takes_one_path_in_all_passes(padded: bool) -> None:
    """N6: its fast path skips padded positions, where passes with a gradient do not."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).double().eval()

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = encoder, nn.Linear(8, 3).double()

        def forward(self, x: Tensor, padding: Tensor | None) -> Tensor:
            return self.head(self.encoder(x, src_key_padding_mask=padding).mean(1))

    x, y = torch.randn(4, 5, 8).double(), torch.zeros(4).long()
    padding = torch.arange(5) > torch.tensor([[2], [4], [3], [5]]) if padded else None
    for kind, options in ((iam.IAMD, {}), (iam.IAMD, {"lean": True}), (iam.IAMS, {})):
        step = kind(Classifier().eval(), rho=1e-4, **options).backward((x, padding), y, F.cross_entropy)
        assert 0 < float(step.inconsistency) < 1e-6


@pytest.mark.parametrize("recipe", PERTURBING, ids=str)
def test_radius_and_weight_of_the_penalty_are_in_the_state(recipe: Recipe) -> None:
    one, two = (recipe.objective(CASES[0].model()) for _ in range(2))
    one.rho = 0.7
    if isinstance(one, iam.IAMD):
        one.beta = 3.0
    two.load_state_dict(one.state_dict())
    assert two.rho == two.ball.rho == 0.7
    assert getattr(two, "beta", 3.0) == (3.0 if isinstance(one, iam.IAMD) else getattr(two, "beta", 3.0))


def test_a_state_belongs_to_its_objective() -> None:
    model = CASES[0].model()
    for wrong in (iam.SAM, iam.IAMS, iam.Plain):
        with pytest.raises(ValueError, match=f"that of '{wrong.__name__}', and this objective is 'IAMD'"):
            iam.IAMD(model).load_state_dict(wrong(model).state_dict())


def test_a_carried_direction_is_no_random_start() -> None:
    """The state of an objective that carries is one that an objective with random starts can go on from."""
    case = CASES[0]
    model = case.model()
    carrying, drawing = iam.IAMD(model, start="carry"), iam.IAMD(model, seed=5)
    carrying.backward(case.inputs(), case.targets(), case.criterion)
    drawing.load_state_dict(carrying.state_dict())
    starts = [reference.flat(drawing.maximizer._begin(1)[0]) for _ in range(2)]
    assert abs(float(F.cosine_similarity(*starts, dim=0))) < 0.9


def test_sub_batches_report_their_mean() -> None:
    case = CASES[0]
    x, y = case.inputs(8), case.targets(8)
    for recipe in RECIPES:
        step = recipe.objective(case.model(), sub_batch=4).backward(x, y, case.criterion)
        objective, halves = recipe.objective(case.model()), (slice(0, 4), slice(4, 8))
        parts = [objective.backward(x[part], y[part], case.criterion) for part in halves]
        for name in ("loss", "objective", "inconsistency"):
            found = getattr(step, name)
            if found is not None:
                mean = sum(float(getattr(one, name)) for one in parts) / 2
                assert float(found) == pytest.approx(mean, rel=1e-10), (recipe.name, name)
    factors = iter([1.0, float("nan")])
    objective = iam.Plain(case.model(), sub_batch=4)
    assert not bool(objective.backward(x, y, lambda out, y: case.criterion(out, y) * next(factors)).finite)


def test_objectives_may_be_made_before_the_model_is_moved() -> None:
    model = CASES[0].model()
    objective = iam.IAMD(model)
    model.float()
    step = objective.backward(CASES[0].inputs().float(), CASES[0].targets(), CASES[0].criterion)
    assert bool(step.finite)
