"""The Fisher matrix written out, to check once that its factor tells the truth."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from iam_lab.toy.fisher import FisherSpectrum, cosine
from torch_iam.spectrum import FisherOperator

BLOCK = 250


@dataclass(frozen=True)
class DenseCheck:
    """The factor's spectrum against that of the whole matrix.

    Attributes:
        weights: m; the matrix has m² entries.
        largest: lambda_max from the whole matrix.
        eigenvalue_difference: the largest |difference| of any eigenvalue, over lambda_max.
        cosine: |cos| of the two top eigenvectors.
        seconds: what the whole matrix took.
    """

    weights: int
    largest: float
    eigenvalue_difference: float
    cosine: float
    seconds: float


def dense_fisher(network: nn.Module, points: Tensor) -> Tensor:
    """F column by column, from products with unit vectors, ``[m, m]``: a way that knows no factor."""
    operator = FisherOperator(network, points)
    identity = torch.eye(operator.shape[0], dtype=points.dtype)
    matrix = torch.cat([operator @ block for block in torch.split(identity, BLOCK, dim=1)], dim=1)
    return (matrix + matrix.T) / 2


def dense_check(network: nn.Module, points: Tensor) -> DenseCheck:
    """Full eigendecomposition of F; minutes for the paper's 5,393 weights."""
    began = time.perf_counter()
    values, vectors = torch.linalg.eigh(dense_fisher(network, points))
    seconds = time.perf_counter() - began
    spectrum = FisherSpectrum.of(network, points)
    known = torch.zeros_like(values)
    rank = min(len(known), len(spectrum.eigenvalues))
    known[:rank] = spectrum.eigenvalues[:rank]
    largest = float(values[-1])
    return DenseCheck(
        weights=len(values),
        largest=largest,
        eigenvalue_difference=float((values.flip(0) - known).abs().max()) / largest,
        cosine=cosine(vectors[:, -1], spectrum.eigenvectors(1)[:, 0]),
        seconds=seconds,
    )
