"""The laboratory: recipes, runs and reports built on ``torch_iam``."""
