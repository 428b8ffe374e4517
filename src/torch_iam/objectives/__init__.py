"""The objectives, one file each; ``reference`` holds the same, readable and slow."""

from torch_iam.objectives.base import Objective, Step
from torch_iam.objectives.iam_d import IAMD
from torch_iam.objectives.iam_s import IAMS
from torch_iam.objectives.plain import Plain
from torch_iam.objectives.sam import ASAM, SAM

__all__ = ["ASAM", "IAMD", "IAMS", "SAM", "Objective", "Plain", "Step"]
