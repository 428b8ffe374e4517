"""A whole run: from its folder, through its epochs, to its summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from iam_lab.errors import Interrupted
from iam_lab.recipes.schema import Config
from iam_lab.runs import checkpoint
from iam_lab.runs.environment import environment
from iam_lab.runs.folder import RunFolder
from iam_lab.train.clock import Clock
from iam_lab.train.numerics import device_of, numerics, seed_for
from iam_lab.train.stop import Stop, stoppable
from iam_lab.train.summary import chosen_by, finite, is_better, least, peak_memory, summarized
from iam_lab.train.task import Task, build_task
from iam_lab.train.trainer import Trainer
from iam_lab.train.watch import Progress, Watcher

LOOK_EVERY = 0.5
"""Seconds between moves of the bar; on a GPU also between readings, each of which makes the CPU wait."""

MakeTask = Callable[[Config, torch.device], Task]
MakeWatchers = Callable[[int], Sequence[Watcher]]


def train(
    folder: RunFolder,
    config: Config,
    *,
    recipe: str = "",
    changed: Mapping[str, Any] | None = None,
    device: str = "auto",
    watchers: MakeWatchers = lambda first_epoch: (),
    task: MakeTask = build_task,
) -> dict[str, Any]:
    """Train from wherever the folder is to the end, and return the summary.

    Called again after being killed, it continues with the epoch after the last saved one (or inside an
    epoch, where it was asked to stop), on a CPU to the very same bits. A finished run is left as it is.

    Args:
        folder: of the run; nobody else may be writing there.
        config: what is run.
        recipe: name of the recipe, for the record.
        changed: what differs from it, for the record.
        device: ``auto``, ``cpu``, ``cuda:1``.
        watchers: makes those who look on, given the epoch to come.
        task: makes what is learned.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM, when the run is saved.
    """
    with folder.lock():
        folder.check(config)
        if folder.finished:
            return folder.summary()
        place = device_of(device)
        with numerics(config.training, seed_for(config.seed, "weights"), place), stoppable() as stop:
            run = Run(folder, config, Trainer(config, task(config, place), place), stop)
            folder.begin(recipe, config, changed)  # now that nothing is wrong with the config
            run.resume()
            for name, content in run.trainer.task.files().items():
                folder.keep(name, content)
            folder.note_start(environment(str(place)), after_epoch=run.trainer.epoch)
            run.watchers = watchers(run.trainer.epoch + 1)
            try:
                return run.to_the_end()
            finally:
                for watcher in run.watchers:
                    watcher.close()


class Run:
    """The epochs of a run, and its files.

    Args:
        folder: of the run, which is locked.
        config: what is run.
        trainer: what makes the steps.
        stop: whether it has been asked to end.

    Attributes:
        lines: the metrics of all epochs.
        forgotten: how many of them, the first ones, have no weights in ``best.safetensors`` to compare with.
    """

    def __init__(self, folder: RunFolder, config: Config, trainer: Trainer, stop: Stop) -> None:
        self.folder, self.config, self.trainer, self.stop = folder, config, trainer, stop
        self.lines: list[dict[str, Any]] = []
        self.watchers: Sequence[Watcher] = ()
        self.clock = Clock()
        self.forgotten = 0

    def resume(self) -> None:
        """Take up the checkpoint, if there is one."""
        before = 0.0
        if self.folder.checkpoint.exists():
            state = checkpoint.load(self.folder.checkpoint, self.config, self.trainer.device)
            with checkpoint.taken_up(self.folder.checkpoint):
                self.trainer.load_state_dict(state["trainer"])
                before = float(state["seconds"])
        self.lines = self.folder.rewind(self.trainer.epoch)
        self._mend_best()
        self.clock = Clock(self.trainer.step, before)

    def to_the_end(self) -> dict[str, Any]:
        """All epochs that are left, and the summary."""
        while not self.trainer.done:
            try:
                self._epoch()
            except Interrupted as request:
                self._save()
                raise Interrupted(
                    f"{request}; {self.folder.path} is saved after step {self.trainer.step} of "
                    f"{self.trainer.steps}. Run the same command again to continue.",
                    request.signal,
                ) from None
        summary = summarized(
            self.folder.recipe,
            self.config,
            self.lines,
            parameters=sum(weight.numel() for weight in self.trainer.task.model.parameters()),
            starts=len(self.folder.starts()),
        )
        self.folder.finish(summary)
        return summary

    def step(self) -> None:
        """One optimizer step and all that a run does around it; ``benchmarks/train_throughput.py`` times this."""
        self.trainer.advance()
        self._look()
        self.stop.check()

    def _epoch(self) -> None:
        """What is left of an epoch: steps, judgement, its line, its weights, its checkpoint, in this order.

        A run that is killed in between finds the last checkpoint, and writes the same again.
        """
        trainer = self.trainer
        while not trainer.epoch_done:
            self.step()
        line = self._judged()
        self.folder.append(line)
        if is_better(line, self.lines[self.forgotten :], chosen_by(self.config)):
            self._keep_best(line)
        self.lines.append(line)
        trainer.begin_epoch()
        self.clock = Clock(trainer.step)
        self._save()
        for watcher in self.watchers:
            watcher.epoch(line, trainer.epochs)

    def _look(self) -> None:
        """Give up a training that is lost; move the bar from time to time."""
        trainer, due = self.trainer, self.clock.due(LOOK_EVERY)
        if due or not trainer.waits:
            trainer.check()
        if not due or not self.watchers:
            return
        means = trainer.totals.means()
        self.clock.lap(trainer.step)
        speed = self.clock.steps_per_second
        progress = Progress(
            epoch=trainer.epoch + 1,
            epochs=trainer.epochs,
            step=trainer.step,
            steps=trainer.steps,
            values=means,
            steps_per_second=speed,
            seconds_left=(trainer.steps - trainer.step) / speed if speed else 0.0,
        )
        for watcher in self.watchers:
            watcher.progress(progress)

    def _judged(self) -> dict[str, Any]:
        """The line of the epoch."""
        trainer, task, epoch = self.trainer, self.trainer.task, self.trainer.epoch + 1
        trainer.check()
        means = trainer.totals.means()
        self.clock.lap(trainer.step)
        values: dict[str, Any] = {**means, **trainer.counts()}
        if _due(self.config.evaluation.every, epoch, trainer.epochs):
            values |= task.evaluate(trainer.judged, self.stop.check)
        if _due(self.config.measurement.every, epoch, trainer.epochs):
            values |= task.measure(trainer.judged, self.stop.check)
        speed = self.clock.steps_per_second
        steps = trainer.step - (epoch - 1) * trainer.steps_per_epoch
        timing = {
            "train_seconds": steps / speed if speed else None,
            "seconds": self.clock.seconds,
            "steps_per_second": speed or None,
            "images_per_second": speed * trainer.images_per_step or None,
            "peak_memory_gib": peak_memory(trainer.device),
        }
        return finite({"epoch": epoch, "step": trainer.step, **values}) | {"timing": timing}

    def _keep_best(self, line: Mapping[str, Any]) -> None:
        metric = chosen_by(self.config)
        told = {"epoch": line["epoch"], "chosen_by": metric, metric: line[metric]}
        checkpoint.save_weights(self.folder.best, self.trainer.judged.state_dict(), told)

    def _mend_best(self) -> None:
        """Where the best weights were deleted, keep the best of the epochs that are not gone with them.

        These are the last one, if nothing has moved since, and those to come. The file says which epoch it is of.
        """
        trainer, metric = self.trainer, chosen_by(self.config)
        if self.folder.best.exists() or least(self.lines, metric) is None:
            return
        self.forgotten = len(self.lines)
        at_its_end = trainer.step == min(trainer.epoch * trainer.steps_per_epoch, trainer.steps)
        if at_its_end and self.lines[-1].get(metric) is not None:
            self._keep_best(self.lines[-1])
            self.forgotten -= 1

    def _save(self) -> None:
        state = {"trainer": self.trainer.state_dict(), "seconds": self.clock.seconds}
        checkpoint.save(self.folder.checkpoint, self.config, state)


def _due(every: int, epoch: int, epochs: int) -> bool:
    """Every so many epochs, and in the last one; never for 0."""
    return every > 0 and (epoch % every == 0 or epoch == epochs)
