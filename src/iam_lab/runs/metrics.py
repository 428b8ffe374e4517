"""The names in a line of ``metrics.jsonl``."""

from __future__ import annotations

_JUDGED = ("error", "loss", "top5_error")

METRICS: tuple[str, ...] = (
    *(
        f"{split}_{name}"
        for split in ("test", "validation", "train_clean", "probe_train")
        for name in _JUDGED
    ),
    *("s_rho", "s_rho_stderr", "s_rho_best", "s_rho_images"),
    *("lambda_max_fisher", "lambda_max_hessian", "trace_hessian"),
    *("train_loss", "train_objective", "train_s_rho", "train_error", "train_match_error"),
    *("train_unlabelled_loss", "train_chosen"),
    *("grad_norm", "lr", "skipped_steps", "failed_ascents", "epoch", "step"),
)
"""Those of all tasks; which of them a line has depends on its recipe, and on whether the epoch was judged."""
