"""What a criterion does over a batch is found out, and what cannot be added up is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.cases import CASES, relative
from tests.oracles import dense
from torch import Tensor, nn
from torch.nn import functional as F

import torch_iam as iam

CASE, TOKENS = CASES[0], CASES[4]
X, Y = CASE.inputs(9), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2])
WEIGHTS = torch.tensor([1.0, 5.0, 20.0], dtype=torch.float64)
WEIGHTED = nn.CrossEntropyLoss(WEIGHTS)


def product(model: nn.Module, data: Any, criterion: Any, **options: Any) -> Tensor:
    operator = iam.HessianOperator(model, data, criterion, **options)
    return operator @ torch.linspace(-1, 1, operator.shape[0], dtype=torch.float64)


def headless() -> nn.Module:
    """Logits of zero, whatever the input."""
    model = CASE.model()
    nn.init.zeros_(model[-1].weight)
    nn.init.zeros_(model[-1].bias)
    return model


def by_class() -> list[tuple[Tensor, Tensor]]:
    return [(X[c == Y], Y[c == Y]) for c in range(3)]


def lopsided() -> list[tuple[Tensor, Tensor]]:
    """A class that only the smaller batch has."""
    return [(X[:5], Y[:5].clamp(max=1)), (X[5:], torch.full((4,), 2))]


@pytest.mark.parametrize(
    ("model", "data", "criterion"),
    [
        (CASE.model, by_class, WEIGHTED),
        (headless, by_class, WEIGHTED),
        (headless, lambda: [(X[:6], Y[:6]), (X[6:], Y[6:])], WEIGHTED),
        (CASE.model, lopsided, lambda z, y: F.cross_entropy(z, y, ignore_index=2)),
        (CASE.model, lambda: [(X[:6], Y[:6]), (X[6:], Y[6:])], lambda z, y: z.std(0).sum()),
    ],
    ids=["classes apart", "classes apart, zero head", "zero head", "ignored apart", "coupled"],
)
def test_what_does_not_add_up_is_refused_whatever_the_values(
    model: Callable[[], nn.Module], data: Callable[[], Any], criterion: Any
) -> None:
    with pytest.raises(ValueError, match="neither a mean nor a sum"):
        iam.HessianOperator(model(), data(), criterion)


def test_a_sum_is_noticed_where_the_residual_is_zero() -> None:
    model = CASE.model().eval()
    y = model(X).detach()
    whole = product(model, [(X, y)], nn.MSELoss(reduction="sum"))
    apart = product(model, [(X[:2], y[:2]), (X[2:], y[2:])], nn.MSELoss(reduction="sum"))
    assert relative(apart, whole) < 1e-12
    assert relative(apart, 3 * product(model, [(X, y)], nn.MSELoss())) < 1e-12


def probabilities() -> nn.Module:
    return nn.Sequential(CASE.model(), nn.Softmax(1))


@pytest.mark.parametrize(
    ("model", "criterion"),
    [
        (probabilities, lambda p, y: F.binary_cross_entropy(p, F.one_hot(y, 3).double())),
        (probabilities, lambda p, y: F.nll_loss(p.log(), y)),
        (probabilities, lambda p, y: -torch.distributions.Categorical(p).log_prob(y).mean()),
        (CASE.model, lambda z, y: F.cross_entropy(z, y, label_smoothing=0.1)),
        (CASE.model, lambda z, y: F.mse_loss(z.softmax(1), F.one_hot(y, 3).double())),
    ],
)
def test_means_of_every_kind_are_taken(model: Callable[[], nn.Module], criterion: Any) -> None:
    torch.manual_seed(0)
    built = model().double().eval()
    whole = dense.hessian(built, X, Y, criterion)
    data = [(X[:1], Y[:1]), (X[1:4], Y[1:4]), (X[4:], Y[4:])]
    v = torch.linspace(-1, 1, len(whole), dtype=torch.float64)
    assert relative(product(built, data, criterion), whole @ v) < 1e-8


def test_targets_that_the_criterion_ignores_are_left_out() -> None:
    model = CASE.model().eval()
    y = Y.clone()
    y[[0, 6, 7, 8]] = -100
    whole = product(model, [(X, y)], nn.CrossEntropyLoss())
    for reduction in ("mean", "sum"):
        criterion = nn.CrossEntropyLoss(reduction=reduction)
        apart = product(model, [(X[:2], y[:2]), (X[2:], y[2:])], criterion, batch_size=3)
        assert relative(apart, whole) < 1e-12
    operator = iam.HessianOperator(
        model, [(X[:2], y[:2]), (X[2:], y[2:])], nn.CrossEntropyLoss(), batch_size=3
    )
    assert operator.loss() == pytest.approx(F.cross_entropy(model(X), y).item())
    with pytest.raises(ValueError, match="Every target is -100"):
        product(model, [(X, torch.full_like(y, -100))], nn.CrossEntropyLoss())


def per_token(reduction: str = "mean") -> Callable[[Tensor, Tensor], Tensor]:
    return lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction=reduction)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("ignored", [False, True])
def test_token_batches_of_unequal_length(reduction: str, ignored: bool) -> None:
    """H = F + R, and the mean is over positions, each counted once."""
    model = TOKENS.model().eval()
    draw = torch.Generator().manual_seed(0)
    data = [
        (torch.randint(0, 7, shape, generator=draw), torch.randint(0, 7, shape, generator=draw))
        for shape in ((2, 3), (2, 12), (1, 2))
    ]
    inputs: list[Any] = [x for x, _ in data]
    divergence = None
    if ignored:
        data[1][1][0, 4:] = -100
        kept = {x.shape: y != -100 for x, y in data}
        divergence = iam.CategoricalKL(mask=lambda x: kept[x.shape])
    flat = torch.cat([y.flatten() for _, y in data])

    def whole(outputs: Tensor, _: Tensor) -> Tensor:
        return F.cross_entropy(torch.cat([model(x).flatten(0, 1) for x in inputs]), flat)

    h = iam.HessianOperator(model, data, per_token(reduction))
    block = torch.eye(h.shape[0], dtype=torch.float64)[:, ::7]
    expected = dense.hessian(model, inputs[0], flat, whole) @ block
    assert relative(h @ block, expected) < 1e-8
    f = iam.FisherOperator(model, inputs, divergence=divergence) @ block
    r = iam.ResidualOperator(model, data, per_token(reduction)) @ block
    assert relative(f + r, expected) < 1e-8
    assert h.loss() == pytest.approx(whole(flat, flat).item())


def test_single_sequences_say_mean_and_sum_apart() -> None:
    model, x = TOKENS.model().eval(), torch.tensor([[1, 2, 3]])
    mean, total = (product(model, [(x, x)], per_token(r)) for r in ("mean", "sum"))
    assert relative(total, mean) < 1e-12


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.main, self.aux = nn.Linear(4, 5), nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = torch.tanh(self.body(x))
        z = self.main(h)
        return {"logits": z, "prediction": z, "aux": self.aux(h)}


@pytest.mark.parametrize("kind", [iam.EmpiricalFisherOperator, iam.ResidualOperator])
def test_terms_outside_the_output_are_refused_where_they_would_be_lost(kind: Any) -> None:
    torch.manual_seed(0)
    model, data = TwoHeads().double(), [(X, Y)]
    nn.init.zeros_(model.aux.weight)

    def with_aux(out: dict[str, Tensor], y: Tensor) -> Tensor:
        return F.cross_entropy(out["logits"], y) + 0.3 * out["aux"].square().mean()

    with pytest.raises(ValueError, match="more of the model's answer than the output"):
        kind(model, data, with_aux)
    iam.HessianOperator(model, data, with_aux)
    # The same tensor under another name is not another path, and what is not used is none.
    v = torch.ones(sum(w.numel() for w in model.parameters()), dtype=torch.float64)
    same = kind(model, data, lambda out, y: F.cross_entropy(out["prediction"], y))
    plain = kind(model, data, lambda out, y: F.cross_entropy(out["logits"], y))
    assert torch.equal(same @ v, plain @ v)
    with pytest.raises(ValueError, match="more of the model's answer than the output"):
        kind(model, data, lambda out, y: F.cross_entropy(out["aux"], y))


def test_a_label_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"Target 7 is out of bounds.*They go from 0 to 7.*\[9, 3\]"):
        iam.HessianOperator(
            CASE.model(), [(X, torch.tensor([0, 1, 2, 0, 7, 2, 0, 1, 2]))], nn.CrossEntropyLoss()
        )


def test_a_trace_is_not_cut_where_pieces_do_not_add_up() -> None:
    x, y = CASE.inputs(40), CASE.targets(40)
    model = CASE.model().eval()
    criterion = nn.CrossEntropyLoss(WEIGHTS)
    found = iam.hessian_trace(model, (x, y), criterion, tolerance=1e-9, max_matvecs=500)
    assert found.value == pytest.approx(float(dense.hessian(model, x, y, criterion).trace()), rel=1e-6)
    with pytest.raises(ValueError, match="batch_size="):
        iam.hessian_trace(model, (x, y), criterion, batch_size=32)


@pytest.mark.parametrize("axis", ["similarity", "projection"])
def test_a_trace_is_not_cut_where_the_divergence_couples_examples(axis: str) -> None:
    x, model = CASE.inputs(40), CASE.model()
    divergence = iam.SimilarityKL(axis=axis)
    whole = iam.FisherOperator(model, x, divergence=divergence)
    exact = float((whole @ torch.eye(whole.shape[0], dtype=torch.float64)).trace())
    found = iam.fisher_trace(model, x, divergence=divergence, tolerance=1e-9, max_matvecs=500)
    assert found.value == pytest.approx(exact, rel=1e-6)
    # A divergence of one's own may couple examples too.
    own = iam.fisher_trace(
        model, x, divergence=lambda a, b: divergence(a, b), tolerance=1e-9, max_matvecs=500
    )
    assert own.value == pytest.approx(exact, rel=1e-6)


def test_an_error_names_the_batch_of_the_loader_not_a_piece() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = CASE.build()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x.sqrt())

    x, y = CASE.inputs(200).abs(), CASE.targets(200)
    bad = x[100:].clone()
    bad[50:] *= -1
    model = Root().double()
    with pytest.raises(FloatingPointError, match=r"in batch 1 \(1 of 2 batches\)"):
        iam.fisher_trace(model, [x[:100], bad])
    with pytest.raises(FloatingPointError, match=r"in batch 1 \(1 of 2 batches\)"):
        iam.hessian_trace(model, [(x[:100], y[:100]), (bad, y[100:])], nn.CrossEntropyLoss())


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_a_batch_size_is_a_positive_integer(size: Any) -> None:
    with pytest.raises(ValueError, match="batch_size must be an integer of 1"):
        iam.FisherOperator(CASE.model(), X, batch_size=size)
    with pytest.raises(ValueError, match="batch_size must be an integer of 1"):
        iam.HessianOperator(CASE.model(), (X, Y), nn.CrossEntropyLoss(), batch_size=size)
