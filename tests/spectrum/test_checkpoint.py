"""Products through activation checkpointing, which runs parts of the model again in the backward."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import torch_iam as iam
from torch_iam.spectrum.curvature import CurvatureOperator

KINDS = {
    "fisher": lambda m, x, y, **o: iam.FisherOperator(m, x, **o),
    "empirical": lambda m, x, y, **o: iam.EmpiricalFisherOperator(m, (x, y), F.cross_entropy, **o),
    "hessian": lambda m, x, y, **o: iam.HessianOperator(m, (x, y), F.cross_entropy, **o),
    "residual": lambda m, x, y, **o: iam.ResidualOperator(m, (x, y), F.cross_entropy, **o),
}
every = pytest.mark.parametrize("kind", KINDS)


class Segments(nn.Module):
    """Two segments that may be checkpointed, with dropout and a buffer that a pass in training mode writes."""

    def __init__(self, on: bool, reentrant: bool = False) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(4, 5), nn.Tanh()),
                nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.3), nn.GELU()),
            ]
        )
        self.head = nn.Linear(5, 3)
        self.register_buffer("passes", torch.zeros(()))
        self.on, self.reentrant, self.runs = on, reentrant, 0

    def segment(self, i: int, x: Tensor) -> Tensor:
        self.runs += 1
        if self.training:
            self.passes += 1
        return self.parts[i](x)

    def forward(self, x: Tensor) -> Tensor:
        for i in range(2):
            run = checkpoint if self.on else lambda work, *rest, **_: work(*rest)
            x = run(self.segment, i, x, use_reentrant=self.reentrant)
        return self.head(x)


def built(*options: bool) -> Segments:
    torch.manual_seed(0)
    return Segments(*options).double()


def data() -> tuple[Tensor, Tensor]:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).double(), torch.arange(6) % 3


def vector(operator: CurvatureOperator) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(operator.shape[0], generator=generator, dtype=operator.dtype)


@every
@pytest.mark.parametrize(
    "options",
    [{}, {"params": iam.no_norms_and_biases}, {"training": True}],
    ids=[
        "all weights",
        "matrices",
        "training",
    ],  # the name of a function would be its address, another in each worker
)
def test_products_are_the_same(kind: str, options: dict[str, Any]) -> None:
    plain, model = (KINDS[kind](built(on), *data(), **options) for on in (False, True))
    v = vector(plain)
    expected = plain @ v
    for _ in range(2):  # the second knows what broke
        assert torch.allclose(model @ v, expected, rtol=1e-10, atol=1e-14)
    assert torch.allclose(model.quadratics(lambda: v), plain.quadratics(lambda: v), rtol=1e-10)
    assert float(model.model.passes) == 0


@pytest.mark.parametrize("kind", ["fisher", "empirical"])
def test_what_broke_is_not_tried_again(kind: str) -> None:
    model = built(True)
    operator = KINDS[kind](model, *data())
    runs = []
    for _ in range(3):
        before = model.runs
        operator @ vector(operator)
        runs.append(model.runs - before)
    assert runs[0] > runs[1] == runs[2]


@every
def test_a_vision_transformer(kind: str) -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    sizes = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 2, "num_heads": 2, "num_classes": 3}
    model = timm.models.VisionTransformer(**sizes).double().eval()
    x, y = torch.randn(4, 3, 8, 8).double(), torch.arange(4) % 3
    expected = KINDS[kind](model, x, y)
    v = vector(expected)
    image = expected @ v
    model.set_grad_checkpointing(True)
    assert torch.allclose(KINDS[kind](model, x, y) @ v, image, rtol=1e-9, atol=1e-12)


@every
def test_the_older_kind_is_refused_where_it_would_lose_weights(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as it is outside of tests
        with pytest.raises(ValueError, match="use_reentrant=False"):
            operator = KINDS[kind](built(True, True), *data())
            operator @ vector(operator)
