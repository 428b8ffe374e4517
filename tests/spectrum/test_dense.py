"""Every operator against the matrix written out, on models of every kind."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from tests.cases import CASES, Case, relative
from tests.oracles import dense
from torch import Tensor, nn
from torch.nn import functional as F

import torch_iam as iam

EXACT = 1e-8


def batches(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Unequal parts."""
    cuts = (0, 1, 4, len(tensors[0]))
    return [tuple(t[a:b] for t in tensors) for a, b in pairwise(cuts)]


def probes(m: int) -> Tensor:
    return torch.randn(m, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def matrix(operator: iam.Operator) -> Tensor:
    return operator @ torch.eye(operator.shape[0], dtype=operator.dtype)


def error(operator: iam.Operator, expected: Tensor) -> float:
    """Relative, on a block of three vectors."""
    block = probes(len(expected))
    return relative(operator @ block, expected @ block)


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def prepared(case: Case, size: int = 6) -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    """A model in training mode as it is found, the same for the oracle in eval mode, and data."""
    model = case.model()
    plain = getattr(model, "_orig_mod", model)
    inputs, targets = case.inputs(size), case.targets(size)
    with torch.no_grad():
        plain(case.inputs(size, seed=5))  # running statistics that are not the initial ones
    oracle = case.model()
    oracle = getattr(oracle, "_orig_mod", oracle)
    oracle.load_state_dict(plain.state_dict())
    return model, oracle.eval(), inputs, targets


def test_fisher(case: Case) -> None:
    model, oracle, x, _ = prepared(case)
    found = iam.FisherOperator(model, [part for (part,) in batches(x)])
    assert error(found, dense.fisher(oracle, x)) < EXACT


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_hessian(case: Case, smoothing: float) -> None:
    model, oracle, x, y = prepared(case)

    def criterion(z: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(z.flatten(0, -2), t.flatten(), label_smoothing=smoothing)

    found = iam.HessianOperator(model, batches(x, y), criterion)
    assert error(found, dense.hessian(oracle, x, y, criterion)) < EXACT


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_hessian_is_fisher_plus_the_residual_of_the_lemma(case: Case, smoothing: float) -> None:
    model, oracle, x, y = prepared(case)

    def criterion(z: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(z.flatten(0, -2), t.flatten(), label_smoothing=smoothing)

    data = batches(x, y)
    hessian = iam.HessianOperator(model, data, criterion)
    block = probes(hessian.shape[0])
    h, f = hessian @ block, iam.FisherOperator(model, data) @ block
    r = iam.ResidualOperator(model, data, criterion) @ block
    hot = F.one_hot(y.flatten(), case.classes).double()
    lemma = dense.residual(oracle, x, hot * (1 - smoothing) + smoothing / case.classes) @ block
    assert (h - f - lemma).norm() / h.norm() < EXACT
    assert (r - lemma).norm() / h.norm() < EXACT


def test_empirical_fisher(case: Case) -> None:
    model, oracle, x, y = prepared(case)
    found = iam.EmpiricalFisherOperator(model, batches(x, y), case.criterion)
    assert error(found, dense.empirical_fisher(oracle, x, y, case.criterion)) < EXACT


def test_squared_error() -> None:
    case = CASES[0]
    model, oracle, x, _ = prepared(case)
    y = torch.randn(len(x), 3, dtype=torch.float64)
    criterion = nn.MSELoss()
    h = matrix(iam.HessianOperator(model, batches(x, y), criterion))
    assert relative(h, dense.hessian(oracle, x, y, criterion)) < EXACT
    f = matrix(iam.FisherOperator(model, [part for (part,) in batches(x)], divergence=iam.GaussianKL()))
    assert relative(f, dense.gauss_newton_of_squares(oracle, x)) < EXACT
    # The mean runs over 3 outputs too, and the square has no half: H = (2 / 3) F + R.
    r = matrix(iam.ResidualOperator(model, batches(x, y), criterion))
    assert relative(h, 2 / 3 * f + r) < EXACT


def test_bernoulli_is_the_hessian_of_its_own_loss_on_a_linear_model() -> None:
    model, x = nn.Linear(3, 2).double(), torch.randn(5, 3, dtype=torch.float64)
    y = torch.randint(0, 2, (5, 2)).double()
    f = matrix(iam.FisherOperator(model, x, divergence=iam.BernoulliKL()))
    h = matrix(iam.HessianOperator(model, (x, y), nn.BCEWithLogitsLoss()))
    assert relative(f, 2 * h) < EXACT  # the loss is a mean over both labels


def test_padded_positions_do_not_count() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = CASES[4].build()

        def forward(self, tokens: Tensor, attention_mask: Tensor) -> Tensor:
            return self.inner(tokens)

    torch.manual_seed(0)
    model = Masked().double()
    tokens = torch.randint(0, 7, (3, 5))
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    whole = [{"tokens": tokens[i : i + 1], "attention_mask": mask[i : i + 1]} for i in range(3)]
    kept = [model.inner(tokens)[i, :n] for i, n in enumerate((5, 2, 1))]
    found = matrix(iam.FisherOperator(model, whole))
    total = torch.zeros(())
    for row in torch.cat(kept):
        j = torch.stack([dense.flat_gradient(z, dense.weights_of(model)) for z in row])
        p = row.detach().softmax(0)
        total = total + j.T @ (torch.diag(p) - torch.outer(p, p)) @ j
    assert relative(found, total / 8) < EXACT


@pytest.mark.parametrize("operator", ["fisher", "hessian"])
def test_chosen_weights_are_a_block_of_the_matrix(operator: str) -> None:
    case = CASES[1]
    model, oracle, x, y = prepared(case)
    names = [name for name, _ in model.named_parameters()]
    sizes = [weight.numel() for weight in model.parameters()]
    rows = torch.cat(
        [torch.full((size,), name.endswith("weight")) for name, size in zip(names, sizes, strict=True)]
    )
    chosen = iam.named("weight")
    if operator == "fisher":
        found = iam.FisherOperator(model, x, params=chosen)
        expected = dense.fisher(oracle, x)
    else:
        found = iam.HessianOperator(model, (x, y), case.criterion, params=chosen)
        expected = dense.hessian(oracle, x, y, case.criterion)
    assert found.shape == (int(rows.sum()),) * 2
    assert relative(matrix(found), expected[rows][:, rows]) < EXACT


class Scaled(torch.autograd.Function):
    """Twice its input, without a forward-mode rule."""

    @staticmethod
    def forward(context: object, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(context: object, gradient: Tensor) -> Tensor:
        return 2 * gradient


class WithoutForwardMode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))

    def forward(self, x: Tensor) -> Tensor:
        return Scaled.apply(self.body(x))


def test_operations_without_forward_mode() -> None:
    torch.manual_seed(0)
    model, x, y = WithoutForwardMode().double(), torch.randn(6, 4).double(), torch.arange(6) % 3
    f = iam.FisherOperator(model, x)
    assert relative(matrix(f), dense.fisher(model, x)) < EXACT
    v = torch.randn(f.shape[0], dtype=torch.float64)
    assert torch.allclose(f.quadratics(lambda: v).sum(), v @ dense.fisher(model, x) @ v)
    h = matrix(iam.HessianOperator(model, (x, y), F.cross_entropy))
    assert relative(h, dense.hessian(model, x, y, F.cross_entropy)) < EXACT
    r = matrix(iam.ResidualOperator(model, (x, y), F.cross_entropy))
    assert relative(f @ torch.eye(len(v)).double() + r, h) < EXACT


def test_quadratic_forms_are_those_of_the_batches() -> None:
    case = CASES[0]
    model, oracle, x, y = prepared(case)
    data = batches(x, y)
    for operator, whole in (
        (iam.FisherOperator(model, data), lambda a, b: dense.fisher(oracle, a)),
        (
            iam.HessianOperator(model, data, case.criterion),
            lambda a, b: dense.hessian(oracle, a, b, case.criterion),
        ),
    ):
        drawn = [torch.randn(operator.shape[0], dtype=torch.float64) for _ in data]
        queue = iter(drawn)
        found = operator.quadratics(lambda queue=queue: next(queue))
        expected = [len(a) / len(x) * v @ whole(a, b) @ v for v, (a, b) in zip(drawn, data, strict=True)]
        assert torch.allclose(found, torch.stack(expected), rtol=1e-10)
