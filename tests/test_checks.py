"""Errors of a training step: what was wrong, what was found, what to write instead; nothing has moved."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torch_iam as iam


class Shaky(nn.Module):
    """Randomness that no guard of torch's generators holds still."""

    def forward(self, x: Tensor) -> Tensor:
        return x + random.random()


class Silent(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(x)


class Counting(nn.Linear):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) * self.calls


X, Y = torch.randn(6, 4), torch.zeros(6).long()
OBJECTIVES = [iam.SAM, iam.ASAM, iam.IAMS, iam.IAMD]


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize(
    ("network", "inputs", "targets", "criterion", "more", "message"),
    [
        (model, X, Y, nn.CrossEntropyLoss(reduction="none"), {}, r"must return a scalar, found shape \(6,\)"),
        (model, X, Y, lambda o, y: 1.0, {}, "must return a scalar tensor, found float"),
        (
            model,
            X,
            Y,
            lambda o, y: F.cross_entropy(o.detach(), y),
            {},
            "loss has no gradient, though the model's",
        ),
        (model, X, Y, lambda o, y: (o.argmax(1) != y).float().mean(), {}, r"counts \(an error rate"),
        (model, X, Y[:4], F.cross_entropy, {}, "targets hold 4 examples, the inputs 6.*unlabeled="),
        (model, X[:0], Y[:0], F.cross_entropy, {}, "The batch holds no examples"),
        (model, X / 0, Y, F.cross_entropy, {}, "24 values that are NaN or infinite, of 24"),
        (lambda: Silent(4, 3), X, Y, F.cross_entropy, {}, "The model's output has no gradient"),
        (model, X, Y, F.cross_entropy, {"sub_batch": 4}, "6 examples by 4 leaves 2"),
        (lambda: nn.Sequential(model(), Shaky()), X, Y, F.cross_entropy, {}, r"changes is '1' \(Shaky\)"),
        (lambda: nn.Sequential(Counting(4, 3)), X, Y, F.cross_entropy, {}, r"'0' \(Counting\)"),
    ],
)
def test_before_any_weight_moves(
    kind: type[iam.Objective],
    network: Any,
    inputs: Tensor,
    targets: Tensor,
    criterion: Any,
    more: dict[str, Any],
    message: str,
) -> None:
    net = network()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    objective = kind(net, **more)  # type: ignore[call-arg]
    with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
        objective.backward(inputs, targets, criterion)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(weight.grad is None for weight in net.parameters())


@pytest.mark.parametrize("kind", [iam.IAMS, iam.IAMD])
def test_unlabelled_inputs_of_another_shape(kind: type[iam.IAMD]) -> None:
    objective = kind(model())
    with pytest.raises(ValueError, match=r"unlabeled inputs have shape \(6, 5\), the labelled ones \(6, 4\)"):
        objective.backward(X, Y, F.cross_entropy, unlabeled=torch.randn(6, 5))
    with pytest.raises(ValueError, match=r"a dict with keys .*the labelled ones a Tensor"):
        objective.backward(X, Y, F.cross_entropy, unlabeled={"x": X})
    with pytest.raises(ValueError, match="NaN or infinite"):
        objective.backward(X, Y, F.cross_entropy, unlabeled=X / 0)
    sliced = kind(model(), sub_batch=3)
    with pytest.raises(ValueError, match="the unlabelled inputs into as many parts"):
        sliced.backward(X, Y, F.cross_entropy, unlabeled=X[:5])


@pytest.mark.parametrize("kind", [iam.Plain, iam.SAM, iam.ASAM])
def test_objectives_without_use_for_unlabelled_inputs_say_so(kind: type[iam.Objective]) -> None:
    with pytest.raises(ValueError, match=f"{kind.__name__} follows the labelled loss alone"):
        kind(model()).backward(X, Y, F.cross_entropy, unlabeled=X)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m: iam.IAMD(m, rho=float("nan")), "rho must be"),
        (lambda m: iam.SAM(m, rho=0), "rho must be"),
        (lambda m: iam.IAMD(m, beta=-1), "beta must be a finite number of 0 or more, found -1"),
        (lambda m: iam.IAMD(m, beta=0, start="carry"), "use Plain"),
        (
            lambda m: iam.IAMD(m, steps=0),
            "steps must be an integer of 1 or more with start='random', found 0",
        ),
        (lambda m: iam.IAMD(m, start="warm"), "start must be one of"),
        (lambda m: iam.IAMD(m, probe="hessian"), "probe must be one of"),
        (lambda m: iam.IAMD(m, sign="plus"), "sign must be one of"),
        (lambda m: iam.IAMD(m, batch_fraction=0), r"batch_fraction must be in \(0, 1\]"),
        (lambda m: iam.IAMD(m, start_norm=0), "start_norm must be a finite number above 0"),
        (
            lambda m: iam.IAMD(m, start_norm="auto"),
            "start_norm must be a finite number above 0, found 'auto'",
        ),
        (lambda m: setattr(iam.IAMD(m), "beta", float("nan")), "beta must be a finite number of 0 or more"),
        (lambda m: iam.IAMD(m, sub_batch=0), "sub_batch must be an integer of 1 or more, found 0"),
        (lambda m: iam.IAMD(m, start="carry", sub_batch=2), "one for every sub-batch"),
        (lambda m: iam.IAMD(m, sync="all"), "sync must be one of"),
        (lambda m: iam.IAMS(m, start="carry"), "write start='carry', steps=1"),
        (lambda m: iam.InconsistencyPenalty(m, sign="ascent"), "does not see"),
        (lambda m: iam.IAMD(m.requires_grad_(False)), "No weight may move"),
    ],
)
def test_options(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(model())


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("frozen_first", [False, True])
def test_a_weight_that_was_frozen_or_set_free_since(kind: type[iam.SAM], frozen_first: bool) -> None:
    network = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)).requires_grad_()
    network[0].requires_grad_(not frozen_first)
    objective = kind(network, rho=0.1)
    network[0].requires_grad_(frozen_first)
    before = "frozen" if frozen_first else "trainable"
    with pytest.raises(ValueError, match=rf"'0.weight' was {before} when the objective was made"):
        objective.backward(X, Y, F.cross_entropy)
    assert all(weight.grad is None for weight in network.parameters())


def test_targets_that_are_no_tensor_are_the_criterions_own() -> None:
    boxes = [{"boxes": torch.rand(n, 4)} for n in range(6)]
    for targets in (boxes, Y.repeat(3), (torch.arange(9), torch.full((6,), 2))):
        iam.IAMD(nn.Linear(4, 3), rho=0.1).backward(X, targets, lambda out, _: out.square().mean())
    with pytest.raises(ValueError, match="sub_batch= cuts the targets along"):
        iam.SAM(nn.Linear(4, 3), sub_batch=2).backward(X, Y.repeat(3), lambda out, _: out.square().mean())


def test_inputs_with_a_history() -> None:
    encoder, head = nn.Linear(4, 4), nn.Linear(4, 3)
    with pytest.raises(ValueError, match="The inputs were computed with gradients"):
        iam.IAMD(head).backward(encoder(X), Y, F.cross_entropy)
    assert head.weight.grad is None
    iam.IAMD(head).backward(encoder(X).detach(), Y, F.cross_entropy)


def test_a_model_without_weights() -> None:
    for kind in (iam.Plain, *OBJECTIVES):
        with pytest.raises(ValueError, match="No weight may move"):
            kind(nn.ReLU())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([{"params": None, "radius": 0.1}], r"found keys \['params', 'radius'\]"),
        ([{"rho": 0.1}], r"found keys \['rho'\]"),
    ],
)
def test_groups_with_other_keys(params: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        iam.IAMD(nn.Linear(4, 3), params=params)


def test_gradients_that_no_ball_takes_are_named() -> None:
    network = nn.Sequential(nn.Embedding(5, 4, sparse=True), nn.Linear(4, 3))
    with pytest.raises(ValueError, match=r"'0\.weight' has complex entries or sparse gradients"):
        iam.IAMD(network)
    iam.IAMD(network, params=network[1].weight)


def test_an_option_that_does_not_exist_is_named_beside_those_that_do() -> None:
    with pytest.raises(
        TypeError, match=r"IAMS has no option 'stepz'; its options are batch_fraction, .*steps"
    ):
        iam.IAMS(model(), stepz=3)  # type: ignore[call-arg]


def test_integer_outputs() -> None:
    class Labels(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).argmax(1)

    with pytest.raises(TypeError, match="floating point logits"):
        iam.local_inconsistency(Labels(4, 3), X, rho=0.1)


def test_a_start_below_the_resolution_warns_once() -> None:
    objective = iam.IAMD(model(), start_norm=1e-12)
    with pytest.warns(UserWarning, match="below what the compute dtype resolves"):
        objective.backward(X, Y, F.cross_entropy)
    objective.backward(X, Y, F.cross_entropy)  # a second warning would be an error


def test_the_check_costs_the_first_call_alone() -> None:
    net = model()
    counts = []
    net[0].register_forward_hook(lambda *_: counts.append(1))
    objective = iam.Plain(net)
    for expected in (2, 3, 4):
        objective.backward(X, Y, F.cross_entropy)
        assert len(counts) == expected


def _head_replaced(network: nn.Sequential) -> None:
    network[2] = nn.Linear(5, 3)


def _assigned(network: nn.Sequential) -> None:
    copies = {name: value.clone() for name, value in network.state_dict().items()}
    network.load_state_dict(copies, assign=True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_head_replaced, "'2.weight' is another tensor"),
        (_assigned, "'0.weight' is another tensor"),
        (lambda network: network.append(nn.Linear(3, 3)), "'3.weight' is new"),
        (lambda network: network.__delitem__(2), "'2.weight' is gone"),
    ],
)
@pytest.mark.parametrize("kind", OBJECTIVES)
def test_weights_that_were_replaced_since(kind: type[iam.SAM], change: Any, told: str) -> None:
    network = model()
    objective = kind(network)
    change(network)
    with pytest.raises(ValueError, match=f"{told} since the objective was made"):
        objective.backward(X, Y, F.cross_entropy)


@pytest.mark.parametrize("kind", [iam.Plain, *OBJECTIVES])
def test_additive_masks_are_inputs_like_any_other(kind: type[iam.Objective]) -> None:
    """A mask of 0 and -inf is no mistake; one value of +inf is."""

    class Attending(nn.Linear):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return super().forward(x) * mask.exp().mean()

    mask = torch.triu(torch.full((6, 6), -torch.inf), 1)
    objective = kind(Attending(4, 3))
    objective.backward((X, mask), Y, F.cross_entropy)
    with pytest.raises(ValueError, match="15 values that are NaN or infinite, of 36"):
        objective.backward((X, -mask), Y, F.cross_entropy)


def test_who_means_to_see_nan_says_so() -> None:
    class Mending(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.nan_to_num())

    x = X.clone()
    x[0, 0] = torch.nan
    step = iam.IAMD(Mending(4, 3), check=False).backward(x, Y, F.cross_entropy)
    assert bool(step.finite)


def test_examples_need_not_come_first() -> None:
    class TimeMajor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(4, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[0][-1])

    x, y = torch.randn(7, 4, 4), torch.zeros(4).long()
    with pytest.raises(ValueError, match=r"targets hold 4 examples, the inputs 7.*check=False"):
        iam.IAMD(TimeMajor()).backward(x, y, F.cross_entropy)
    step = iam.IAMD(TimeMajor(), check=False).backward(x, y, F.cross_entropy)
    assert step.outputs.shape == (4, 3)


@pytest.mark.parametrize("targets", [[0.0] * 6, np.zeros(6), {"y": [0] * 6}])
def test_sub_batches_cut_tensors_alone(targets: Any) -> None:
    with pytest.raises(TypeError, match=f"can cut tensors alone; found {type(targets).__name__}"):
        iam.IAMD(model(), sub_batch=3).backward(X, targets, lambda out, _: out.square().mean())


@pytest.mark.parametrize("kind", [iam.Plain, *OBJECTIVES])
def test_a_loss_of_one_number_in_a_row_is_a_loss(kind: type[iam.Objective]) -> None:
    step = kind(model()).backward(X, Y, lambda out, y: F.cross_entropy(out, y).reshape(1))
    assert step.loss.shape == step.objective.shape == ()


def test_inputs_with_a_history_in_several_parts() -> None:
    x = (torch.randn(6, 4, requires_grad=True) * 2).requires_grad_()
    network = model()
    with pytest.raises(ValueError, match=r"computed with gradients.*x.detach\(\)"):
        iam.SAM(network, sub_batch=3).backward(x, Y, F.cross_entropy)
    assert all(weight.grad is None for weight in network.parameters())


def test_an_answer_that_cannot_be_cut() -> None:
    class Sum(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).sum(0)

    with pytest.raises(ValueError, match="has a row for each of the 12 examples"):
        iam.IAMD(Sum(4, 3)).backward(X, Y, lambda out, y: out.sum(), unlabeled=X)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", [iam.Plain, *OBJECTIVES])
def test_gradients_that_are_switched_off(kind: type[iam.Objective], off: Any) -> None:
    objective = kind(model())
    with off(), pytest.raises(RuntimeError, match=r"backward\(\) takes gradients.*iam.local_inconsistency"):
        objective.backward(X, Y, F.cross_entropy)


def test_integers_of_numpy_are_integers() -> None:
    objective = iam.IAMD(model(), steps=np.int64(2), sub_batch=np.int64(3), check=False)  # type: ignore[arg-type]
    objective.backward(X, Y, F.cross_entropy)
    with pytest.raises(ValueError, match=r"steps must be an integer of 1 or more.*found True"):
        iam.IAMD(model(), steps=True)


def test_unlabelled_inputs_of_another_dtype() -> None:
    with pytest.raises(ValueError, match=r"inputs are torch\.uint8, the labelled ones torch\.float32"):
        iam.IAMD(model()).backward(X, Y, F.cross_entropy, unlabeled=torch.zeros(3, 4, dtype=torch.uint8))


def test_sparse_inputs_are_taken_as_they_are() -> None:
    network = nn.Linear(4, 3)
    for x in (X.to_sparse(), X.relu().to_sparse()):
        found = iam.IAMD(network, seed=0).backward(x, Y, F.cross_entropy)
        expected = iam.IAMD(network, seed=0).backward(x.to_dense(), Y, F.cross_entropy)
        torch.testing.assert_close(found.inconsistency, expected.inconsistency)


def test_a_share_of_a_batch_is_what_it_says() -> None:
    seen = []
    network = model()
    network[0].register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    iam.IAMD(network, batch_fraction=0.07, check=False).backward(
        torch.randn(100, 4), torch.zeros(100).long(), F.cross_entropy
    )
    assert seen == [100, 7, 7, 100]
