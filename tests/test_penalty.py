"""The penalty as a term of a loss equals IAM-D, and fits the loops that people have."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import pytest
import torch
from tests.cases import CASES, Case, gradient, relative
from torch import nn

import torch_iam as iam


@pytest.mark.parametrize("case", [c for c in CASES if c.name != "compiled"], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"steps": 3}, {"detach_reference": True}, {"metric": "adaptive"}], ids=str
)
def test_loss_plus_penalty_is_iam_d(case: Case, options: dict[str, object]) -> None:
    """With the same dropout masks, although the clean pass is the pipeline's own."""
    model, other = case.model(), case.model()
    objective = iam.IAMD(model, rho=0.1, beta=2.0, seed=0, check=False, **options)
    torch.manual_seed(3)
    objective.backward(case.inputs(), case.targets(), case.criterion)
    penalty = iam.InconsistencyPenalty(other, rho=0.1, seed=0, **options)
    torch.manual_seed(3)
    logits = other(case.inputs())
    loss = case.criterion(logits, case.targets()) + 2.0 * penalty(case.inputs(), logits)
    loss.backward()
    assert relative(gradient(other), gradient(model)) < 1e-10
    for (name, found), expected in zip(other.named_buffers(), model.buffers(), strict=True):
        assert torch.equal(found, expected), name


def test_an_output_of_ones_own_is_taken_once() -> None:
    """Of a dict, and where taking it is a computation."""

    class Answers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = CASES[0].model()

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"prediction": self.inner(x)}

    case, found = CASES[0], []
    x, y = case.inputs(), case.targets()
    for of_penalty in (False, True):
        model = Answers()
        options: dict[str, Any] = {"rho": 0.1, "seed": 0, "output": lambda out: 3 * out["prediction"]}
        if of_penalty:
            penalty = iam.InconsistencyPenalty(model, **options)
            answer = model(x)
            (case.criterion(answer["prediction"], y) + penalty(x, answer)).backward()
        else:
            objective = iam.IAMD(model, beta=1.0, **options)
            objective.backward(x, y, lambda out, y: case.criterion(out["prediction"], y))
        found.append(gradient(model))
    assert relative(*found) < 1e-10


def test_a_compiled_model() -> None:
    case = next(case for case in CASES if case.name == "compiled")
    model = case.model()
    penalty = iam.InconsistencyPenalty(model, rho=0.1)
    logits = model(case.inputs())
    penalty(case.inputs(), logits).backward()
    assert float(gradient(model).norm()) > 0


def test_called_before_the_model() -> None:
    model = nn.Linear(4, 3)
    penalty = iam.InconsistencyPenalty(model)
    with pytest.raises(RuntimeError, match=r"logits = model\(x\)"):
        penalty(torch.randn(2, 4), torch.randn(2, 3))


def test_logits_of_another_batch_are_noticed() -> None:
    """BatchNorm saw ten examples, the penalty is asked about four of them."""
    case = CASES[1]
    model, x = case.model(), case.inputs(10)
    penalty = iam.InconsistencyPenalty(model)
    logits = model(x)
    with pytest.raises(ValueError, match="on the very inputs of that pass"):
        penalty(x[:4], logits[:4])


def test_logits_without_a_graph() -> None:
    model = nn.Linear(4, 3)
    penalty, x = iam.InconsistencyPenalty(model), torch.randn(2, 4)
    logits = model(x)
    with pytest.raises(ValueError, match="no gradient"):
        penalty(x, logits.detach())


def test_evaluation_passes_in_between_are_not_noted() -> None:
    case = CASES[2]
    model, x = case.model(), case.inputs()
    penalty = iam.InconsistencyPenalty(model, rho=0.1)
    logits = model(x)
    with torch.no_grad():
        model(case.inputs(3))
    assert float(penalty(x, logits).detach()) > 0


def test_a_copy_of_the_model_is_free_of_the_penalty_and_the_penalty_of_the_inputs() -> None:
    model, x = nn.Linear(4, 3), torch.randn(5, 4)
    penalty = iam.InconsistencyPenalty(model, rho=0.1)
    logits = model(x.requires_grad_() * 2)  # inputs with a history cannot be copied
    average, saved = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    visit = penalty.visit
    average(x)
    saved(x)
    assert penalty.visit is visit
    assert penalty(x.detach() * 2, logits).item() > 0
    del penalty
    gc.collect()
    assert not model._forward_pre_hooks
    assert not model._forward_hooks


def test_state_resumes_the_starts() -> None:
    case = CASES[0]
    model, x = case.model(), case.inputs()
    one, two = (iam.InconsistencyPenalty(model, rho=0.1, seed=s) for s in (1, 2))
    one(x, model(x))
    two.load_state_dict(one.state_dict())
    assert torch.equal(one(x, model(x)), two(x, model(x)))


def test_a_lightning_style_step_with_clipping_and_accumulation() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))
    penalty = iam.InconsistencyPenalty(model, rho=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    x = torch.randn(64, 4)
    y = x[:, :3].argmax(1)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        for half in (slice(0, 32), slice(32, 64)):
            logits = model(x[half])
            loss = nn.functional.cross_entropy(logits, y[half])
            ((loss + penalty(x[half], logits)) / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.6 * losses[0]


class Holder(nn.Module):
    """A module that holds a network and its penalty, as a LightningModule does."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.5), nn.Linear(32, 3)).double()
        self.penalty = iam.InconsistencyPenalty(self.net, rho=1e-6)

    def s(self, x: torch.Tensor) -> float:
        return float(self.penalty(x, self.net(x)).detach())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
@pytest.mark.parametrize("used", [False, True])
def test_a_copied_penalty_hears_the_copied_model(copied: Any, used: bool) -> None:
    """With masks of another pass, S would be that of two dropout masks and not of rho."""
    torch.manual_seed(0)
    holder, x = Holder(), torch.randn(8, 4).double()
    if used:
        assert holder.s(x) < 1e-6
    twin = copied(holder)
    assert twin.penalty.model is twin.net
    assert twin.s(x) < 1e-6
    assert holder.s(x) < 1e-6


def test_logits_of_an_earlier_pass_bring_its_masks_along() -> None:
    """Two views in two passes, an objective's passes in between: each penalty takes the pass of its logits."""
    torch.manual_seed(0)
    holder = Holder()
    one, two = torch.randn(8, 4).double(), torch.randn(8, 4).double()
    holder.s(one)  # the first call alone looks whether masks are still
    first, second = holder.net(one), holder.net(two)
    iam.SAM(holder.net).backward(one, torch.zeros(8).long(), nn.functional.cross_entropy)
    assert float(holder.penalty(one, first).detach()) < 1e-6
    assert float(holder.penalty(two, second).detach()) < 1e-6


def test_a_penalty_without_gradients_points_to_the_measure() -> None:
    holder, x = Holder(), torch.randn(8, 4).double()
    holder.s(x)
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"write iam.local_inconsistency\(model, inputs"):
        holder.s(x)


def test_padding_does_not_count() -> None:
    case = next(case for case in CASES if case.name == "tied")

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = case.model()

        def forward(self, tokens: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.inner(tokens)

    tokens = case.inputs()
    mask = torch.arange(5) < torch.arange(1, 9)[:, None].clamp(max=5)
    values = []
    for length in (None, 2):  # what a row says behind its mask must not matter
        inputs = {"tokens": tokens.clone(), "attention_mask": mask.clone()}
        if length:
            inputs["tokens"][~mask] = 0
        model = Masked()
        penalty = iam.InconsistencyPenalty(model, rho=0.1, seed=0)
        values.append(float(penalty(inputs, model(**inputs)).detach()))
        criterion = lambda out, y: out[mask].square().mean()  # noqa: E731
        step = iam.IAMD(Masked(), rho=0.1, seed=0).backward(inputs, case.targets(), criterion)
        values.append(float(step.inconsistency))
    assert values == pytest.approx([values[0]] * 4, rel=1e-9)
    assert values[0] > 0


def test_the_radius_is_in_the_state() -> None:
    one, two = (iam.InconsistencyPenalty(nn.Linear(4, 3), rho=rho) for rho in (0.1, 0.2))
    one.rho = 0.7
    two.load_state_dict(one.state_dict())
    assert two.rho == two.ball.rho == 0.7
