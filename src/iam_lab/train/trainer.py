"""The loop's body: one optimizer step of any task, and everything the next one depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

import torch_iam as iam
from iam_lab.errors import RecipeError, RunError
from iam_lab.recipes.ranges import check_values
from iam_lab.recipes.schema import Config
from iam_lab.train.average import Average
from iam_lab.train.numerics import field, random_state, restore_random_state, scaler_for
from iam_lab.train.optimizers import build_optimizer
from iam_lab.train.schedule import build_rates
from iam_lab.train.task import Task
from iam_lab.train.totals import Totals
from iam_lab.train.update import Update
from torch_iam.capture import CapturedStep


class DivergedError(RunError):
    """A training is lost."""


class Trainer:
    """A training at one moment.

    Nothing here waits for a GPU but :meth:`check` and :meth:`counts`: numbers are summed on the device.

    Args:
        config: of the run.
        task: what is learned.
        device: where.

    Attributes:
        step: optimizer steps done.
        epoch: epochs whose metrics are written.
        totals: sums over the epoch in progress.
    """

    def __init__(self, config: Config, task: Task, device: torch.device) -> None:
        training = config.training
        _check(config, device)
        self.config, self.task, self.device = config, task, device
        self.steps_per_epoch = training.steps_per_epoch or task.batches_per_epoch // training.accumulate
        if self.steps_per_epoch < 1:
            raise RecipeError(
                f"training.batch_size: the training data does not fill one batch of {training.batch_size}."
            )
        self.steps = training.steps or training.epochs * self.steps_per_epoch
        self.epochs = -(-self.steps // self.steps_per_epoch)
        self.optimizer = build_optimizer(task.model, config.optimizer, training)
        self.rates = build_rates(config.schedule, self.optimizer, self.steps, self.steps_per_epoch)
        self.scaler = scaler_for(training, device)
        self.update = Update(task.model, self.optimizer, training.clip_norm, self.scaler)
        with field("training.ema"):
            self.average = None if training.ema is None else Average(task.model, training.ema)
        self.totals = Totals(device)
        self.step = self.epoch = 0
        self._batches: Iterator[Any] | None = None
        self._captured: Callable[[Any], iam.Step] | None = None

    @property
    def judged(self) -> nn.Module:
        """The model that is evaluated and saved as the best: the average, where there is one."""
        return self.task.model if self.average is None else self.average.model

    @property
    def images_per_step(self) -> int:
        """Examples an optimizer step sees."""
        return self.task.images_per_batch * self.config.training.accumulate

    @property
    def epoch_done(self) -> bool:
        """Whether all steps of the epoch in progress are made."""
        return self.step >= min((self.epoch + 1) * self.steps_per_epoch, self.steps)

    @property
    def done(self) -> bool:
        """Whether the training is at its end."""
        return self.epoch >= self.epochs

    def advance(self) -> None:
        """One optimizer step."""
        if self._batches is None:  # late, so that a loaded state decides where they begin
            self._batches = self.task.batches()
            self.task.model.train()
        self.rates.set(self.step)
        self.update.remember()
        if self.config.training.cuda_graph and self.device.type == "cuda":
            parts = [self._replay(next(self._batches))]
            self.update.count()
        else:
            parts = self._accumulate(self._batches)
            self.update.step()
        if self.average is not None:
            self.average.update()
        self.step += 1
        for batch, step in parts:
            values = {"train_loss": step.loss, "train_objective": step.objective}
            if step.inconsistency is not None:
                values["train_s_rho"] = step.inconsistency
            values |= {"grad_norm": self.update.norm, **self.task.watch(batch, step)}
            self.totals.add(values, self.update.finite)

    def check(self) -> None:
        """Give up where the training is lost; here the CPU waits for the device.

        Raises:
            DivergedError: so many steps in a row were not finite.
        """
        run = int(self.update.run)
        if run >= self.config.training.patience:
            raise DivergedError(self._diverged(run))

    def counts(self) -> dict[str, Any]:
        """Counts since the run began, and the learning rate of the last step."""
        return {
            "lr": float(self.optimizer.param_groups[0]["lr"]),
            "skipped_steps": int(self.update.skipped),
            **self.task.counts(),
        }

    @property
    def waits(self) -> bool:
        """Whether reading a number makes the CPU wait for the device."""
        return self.device.type != "cpu"

    def begin_epoch(self) -> None:
        """The epoch in progress is over."""
        self.epoch += 1
        self.totals.clear()

    def state_dict(self) -> dict[str, Any]:
        """Everything the next step depends on."""
        return {
            "step": self.step,
            "epoch": self.epoch,
            "model": self.task.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rates": self.rates.state_dict(),
            "update": self.update.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "task": self.task.state_dict(),
            "totals": self.totals.state_dict(),
            "random": random_state(self.device),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.task.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.rates.load_state_dict(state["rates"])
        self.update.load_state_dict(state["update"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.task.load_state_dict(state["task"])
        self.totals.load_state_dict(state["totals"])
        self.step, self.epoch = int(state["step"]), int(state["epoch"])
        restore_random_state(state["random"], self.device)

    def _accumulate(self, batches: Iterator[Any]) -> list[tuple[Any, iam.Step]]:
        count = self.config.training.accumulate
        parts = []
        for _ in range(count):
            batch = next(batches)
            parts.append((batch, self.task.backward(batch, loss_scale=1 / count, scaler=self.scaler)))
        return parts

    def _replay(self, batch: Any) -> tuple[Any, iam.Step]:
        if self._captured is None:
            self._captured = CapturedStep(self.task.backward, self.task.objective, self.optimizer)
        return batch, self._captured(batch)

    def _diverged(self, run: int) -> str:
        config = self.config
        advice = [f"a smaller optimizer.lr (now {config.optimizer.lr:g})"]
        if config.training.clip_norm is None:
            advice.append("training.clip_norm 1.0")
        if config.training.precision != "fp32":
            advice.append(f"training.precision fp32 (now {config.training.precision})")
        if config.objective.rho is not None:
            advice.append(f"a smaller objective.rho (now {config.objective.rho:g})")
        if not config.schedule.warmup_steps:
            advice.append("schedule.warmup_steps 500")
        return (
            f"Diverged: the gradients of steps {self.step - run + 1} to {self.step} (epoch {self.epoch + 1}) are "
            f"not finite, and these {run} steps were left out. Try {', or '.join(advice)}."
        )


def _check(config: Config, device: torch.device) -> None:
    """What cannot be, or cannot go together."""
    check_values(config)
    training = config.training
    if training.cuda_graph and device.type == "cuda":
        for wrong, what in (
            (training.precision == "fp16", "training.precision fp16 (its scale changes): use bf16"),
            (training.accumulate > 1, "training.accumulate above 1: a graph is a whole step"),
        ):
            if wrong:
                raise RecipeError(f"training.cuda_graph does not go with {what}.")
