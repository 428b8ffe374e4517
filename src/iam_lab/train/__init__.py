"""Training: a :class:`~iam_lab.train.task.Task` says what is learned, one trainer runs them all."""

from typing import TYPE_CHECKING

from iam_lab.lazy import exports

if TYPE_CHECKING:
    from iam_lab.train.run import train as train
    from iam_lab.train.task import Task as Task
    from iam_lab.train.trainer import Trainer as Trainer

__getattr__, __dir__ = exports(__name__, {"Task": ".task", "Trainer": ".trainer", "train": ".run"})
