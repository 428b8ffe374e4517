"""Inconsistency-Aware Minimization: how fragile are a network's outputs, and how to train one whose are not.

Measure: :func:`local_inconsistency`. Train: :class:`IAMD`, :class:`IAMS`, :class:`SAM`, :class:`ASAM`,
:class:`Plain`, :class:`InconsistencyPenalty`, :func:`capture`. What two outputs are compared by:
:class:`CategoricalKL` and its sisters. Which weights move: :class:`Neighborhood`.

Beside it: :func:`fisher_lambda_max`, :func:`hessian_trace` and their sisters, :func:`top_eigenpairs`,
:func:`spectral_density`, :func:`generalization_bound`, :func:`disagreement`, :func:`inconsistency`,
:func:`rank_correlation`.
"""

from torch_iam.capture import capture
from torch_iam.divergence import BernoulliKL, CategoricalKL, GaussianKL, SimilarityKL
from torch_iam.inconsistency import Estimate, local_inconsistency
from torch_iam.neighborhood import Neighborhood
from torch_iam.objectives import ASAM, IAMD, IAMS, SAM, Objective, Plain, Step
from torch_iam.penalty import InconsistencyPenalty
from torch_iam.selection import named, no_norms_and_biases
from torch_iam.version import __version__

# After the submodule of the same name, so that ``inconsistency`` is the function.
# isort: split
from torch_iam.generalization import (
    GeneralizationBound,
    Pairwise,
    RankCorrelation,
    disagreement,
    generalization_bound,
    inconsistency,
    rank_correlation,
)
from torch_iam.spectrum import (
    Eigenpairs,
    Eigenvalue,
    EmpiricalFisherOperator,
    FisherOperator,
    HessianOperator,
    MatrixOperator,
    Operator,
    ResidualOperator,
    SpectralDensity,
    TraceEstimate,
    fisher_lambda_max,
    fisher_trace,
    hessian_lambda_max,
    hessian_trace,
    spectral_density,
    top_eigenpairs,
    trace,
)

__all__ = [
    "ASAM",
    "IAMD",
    "IAMS",
    "SAM",
    "BernoulliKL",
    "CategoricalKL",
    "Eigenpairs",
    "Eigenvalue",
    "EmpiricalFisherOperator",
    "Estimate",
    "FisherOperator",
    "GaussianKL",
    "GeneralizationBound",
    "HessianOperator",
    "InconsistencyPenalty",
    "MatrixOperator",
    "Neighborhood",
    "Objective",
    "Operator",
    "Pairwise",
    "Plain",
    "RankCorrelation",
    "ResidualOperator",
    "SimilarityKL",
    "SpectralDensity",
    "Step",
    "TraceEstimate",
    "__version__",
    "capture",
    "disagreement",
    "fisher_lambda_max",
    "fisher_trace",
    "generalization_bound",
    "hessian_lambda_max",
    "hessian_trace",
    "inconsistency",
    "local_inconsistency",
    "named",
    "no_norms_and_biases",
    "rank_correlation",
    "spectral_density",
    "top_eigenpairs",
    "trace",
]
