"""Where one step of Algorithm 1 points, from very many starts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from iam_lab.toy.boundary import one_step
from iam_lab.toy.fisher import FisherSpectrum, cosine, flat
from torch_iam.neighborhood import Neighborhood

CHUNK = 2000


@dataclass(frozen=True)
class Alignment:
    """delta_1 in the limit of a small start, where it is F eps at length rho, against the eigenvectors.

    Attributes:
        cosines: |cos(delta_1, v_i)| for i = 1, 2, 3, ``[3, starts]``.
        share: of delta_1's squared norm, what lies in the space of v_1, v_2, v_3, ``[starts]``.
        finite: |cos| between F eps and what the algorithm itself gives from eps at its own start norm,
            for the first few starts.
    """

    cosines: Tensor
    share: Tensor
    finite: list[float]

    def summary(self) -> dict[str, object]:
        """Means, spreads and quantiles, as numbers for a file."""
        return {
            "starts": self.share.numel(),
            "mean_cosine": self.cosines.mean(1).tolist(),
            "std_cosine": self.cosines.std(1).tolist(),
            "most_aligned_with": [
                float((self.cosines.argmax(0) == i).double().mean()) for i in range(len(self.cosines))
            ],
            "share_of_top_3_mean": float(self.share.mean()),
            "share_of_top_3_quantiles_5_50_95": torch.quantile(
                self.share, torch.tensor([0.05, 0.5, 0.95], dtype=self.share.dtype)
            ).tolist(),
            "finite_start": {"checked": len(self.finite), "least_cosine": min(self.finite)},
        }


def alignment(
    network: nn.Module, points: Tensor, rho: float, starts: int = 10_000, checked: int = 20
) -> Alignment:
    """From ``starts`` Gaussian starts, all in the eigenbasis of F; ``checked`` of them by the algorithm too."""
    spectrum = FisherSpectrum.of(network, points)
    weights = spectrum.factor.shape[1]
    generator = torch.Generator().manual_seed(0)
    pieces = []
    for first in range(0, starts, CHUNK):
        count = min(CHUNK, starts - first)
        eps = torch.randn(weights, count, generator=generator, dtype=points.dtype)
        pieces.append(spectrum.in_eigenbasis(eps))
    components = torch.cat(pieces, dim=1)
    squares = (components / components.norm(dim=0)).square()
    finite = [_agreement(network, points, spectrum, rho, seed) for seed in range(checked)]
    return Alignment(squares[:3].sqrt(), squares[:3].sum(0), finite)


def _agreement(network: nn.Module, points: Tensor, spectrum: FisherSpectrum, rho: float, seed: int) -> float:
    """|cos| between F eps and delta_1, both from the start of this seed."""
    eps = torch.cat(
        [part.flatten() for part in Neighborhood(network, rho).draw(torch.Generator().manual_seed(seed))]
    )
    limit = spectrum.factor.T @ (spectrum.factor @ eps)
    return cosine(limit, flat(one_step(network, points, rho, seed)))
