"""What else is said to predict generalisation: a bound, models that disagree, and who predicts best."""

from torch_iam.generalization.bound import GeneralizationBound, generalization_bound
from torch_iam.generalization.correlation import RankCorrelation, rank_correlation
from torch_iam.generalization.pairs import Pairwise, disagreement, inconsistency

__all__ = [
    "GeneralizationBound",
    "Pairwise",
    "RankCorrelation",
    "disagreement",
    "generalization_bound",
    "inconsistency",
    "rank_correlation",
]
