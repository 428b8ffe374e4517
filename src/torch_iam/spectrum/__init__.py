"""Curvature without writing a matrix down: operators, eigenpairs, traces, densities."""

from torch_iam.spectrum.density import SpectralDensity, spectral_density
from torch_iam.spectrum.empirical_fisher import EmpiricalFisherOperator
from torch_iam.spectrum.fisher import FisherOperator
from torch_iam.spectrum.hessian import HessianOperator, ResidualOperator
from torch_iam.spectrum.lanczos import Eigenpairs, top_eigenpairs
from torch_iam.spectrum.measures import (
    Eigenvalue,
    fisher_lambda_max,
    fisher_trace,
    hessian_lambda_max,
    hessian_trace,
)
from torch_iam.spectrum.operator import MatrixOperator, Operator
from torch_iam.spectrum.trace import TraceEstimate, trace

__all__ = [
    "Eigenpairs",
    "Eigenvalue",
    "EmpiricalFisherOperator",
    "FisherOperator",
    "HessianOperator",
    "MatrixOperator",
    "Operator",
    "ResidualOperator",
    "SpectralDensity",
    "TraceEstimate",
    "fisher_lambda_max",
    "fisher_trace",
    "hessian_lambda_max",
    "hessian_trace",
    "spectral_density",
    "top_eigenpairs",
    "trace",
]
