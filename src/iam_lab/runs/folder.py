"""The folder of a run.

=====================  ====================================================================================
``config.json``        ``{"format", "recipe", "changed", "config"}``: every field of the config, resolved;
                       ``changed`` holds the fields that differ from the recipe, by dotted path
``environment.json``   ``{"starts": [...]}``: for each start of the process its time, command, commit,
                       versions, machine, device, and the epoch it continued after
``metrics.jsonl``      a line an epoch: ``epoch`` (from 1), ``step``, ``train_loss``, ``train_error`` (in
                       percent), ``lr``, ``skipped_steps``, ...; ``test_error``, ``test_loss``,
                       ``validation_error`` where evaluated; ``s_rho``, ``lambda_max_fisher``, ... where
                       measured; ``timing``, which alone differs between two runs of one config and seed
``labels.json``        of a run with few labels: ``labelled``, the indices of the labelled images in the training
                       set as it is stored, before ``data.validation`` and ``data.train_images`` choose from it
``last.ckpt``          everything the next step depends on; :mod:`iam_lab.runs.checkpoint`
``best.safetensors``   weights of the epoch with the least validation error, or test error without a
                       validation split; averaged ones where the recipe averages. Where it was deleted, of
                       the epochs since; its metadata names the epoch
``summary.json``       only of a finished run: ``last``, ``best`` (least test error over epochs, as the paper
                       reports), ``selected`` (least validation error; null without a split), each a line of
                       metrics; counts, times, memory
=====================  ====================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iam_lab.errors import RecipeError, RunError
from iam_lab.recipes.schema import Config
from iam_lab.recipes.typed import changes, from_plain, to_plain
from iam_lab.runs.files import append_line, read_json, write_atomic, write_json
from iam_lab.runs.lock import exclusive

FORMAT = 1


@dataclass(frozen=True)
class RunFolder:
    """Reads and writes one run.

    >>> import tempfile
    >>> run = RunFolder(Path(tempfile.mkdtemp()) / "seed0")
    >>> run.begin("mine", Config())
    >>> run.append({"epoch": 1, "test_error": 9.0})
    >>> run.recipe, run.config() == Config(), run.metrics(), run.finished
    ('mine', True, [{'epoch': 1, 'test_error': 9.0}], False)
    """

    path: Path

    @property
    def config_file(self) -> Path:
        """``config.json``."""
        return self.path / "config.json"

    @property
    def metrics_file(self) -> Path:
        """``metrics.jsonl``."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoint(self) -> Path:
        """``last.ckpt``."""
        return self.path / "last.ckpt"

    @property
    def best(self) -> Path:
        """``best.safetensors``."""
        return self.path / "best.safetensors"

    @property
    def summary_file(self) -> Path:
        """``summary.json``."""
        return self.path / "summary.json"

    @property
    def exists(self) -> bool:
        """Whether a run has ever begun here."""
        return self.config_file.exists()

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.summary_file.exists()

    @property
    def recipe(self) -> str:
        """The name of the recipe it was made from."""
        return str(self._header()["recipe"])

    @property
    def changed(self) -> dict[str, Any]:
        """What differs from the recipe, by dotted path, the seed left out."""
        return dict(self._header().get("changed", {}))

    def lock(self) -> AbstractContextManager[None]:
        """Hold the folder alone, made if need be."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{self.path} cannot be made: {error.strerror}.") from error
        return exclusive(self.path)

    def check(self, config: Config) -> None:
        """Where a run has begun already, make sure that it is this one."""
        differing = changes(self.config(), config) if self.exists else {}
        if differing:
            before, now = to_plain(self.config()), to_plain(config)
            field = min(differing)
            raise RunError(
                f"{self.path} holds a run with {field}={_at(before, field)!r}; this one has "
                f"{_at(now, field)!r}. Choose another folder with --out, or delete that run."
            )

    def begin(self, recipe: str, config: Config, changed: Mapping[str, Any] | None = None) -> None:
        """Write what is run, unless it has begun already."""
        self.check(config)
        if self.exists:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        told = {path: value for path, value in (changed or {}).items() if path != "seed"}
        write_json(
            self.config_file,
            {"format": FORMAT, "recipe": recipe, "changed": told, "config": to_plain(config)},
        )

    def config(self) -> Config:
        """What is run."""
        try:
            return from_plain(Config, self._header()["config"])
        except RecipeError as error:
            raise RunError(f"{self.config_file} is not a config of this version: {error}") from error

    def note_start(self, environment: Mapping[str, Any], after_epoch: int) -> None:
        """Add a start of the process to ``environment.json``."""
        starts = [*self.starts(), {**environment, "after_epoch": after_epoch}]
        write_json(self.path / "environment.json", {"starts": starts})

    def starts(self) -> list[dict[str, Any]]:
        """Every start of the process, the first one first."""
        path = self.path / "environment.json"
        return list(read_json(path).get("starts", [])) if path.exists() else []

    def keep(self, name: str, content: Mapping[str, Any]) -> None:
        """Write down what the run has drawn; where that is there already, make sure that it is the same."""
        path = self.path / name
        if not path.exists():
            write_json(path, content)
        elif read_json(path) != content:
            raise RunError(
                f"{path} says otherwise than this run: the data has changed since it began, or the file. "
                "Bring the data back, or choose another folder with --out."
            )

    def append(self, line: Mapping[str, Any]) -> None:
        """Add the metrics of an epoch."""
        append_line(self.metrics_file, json.dumps(line))

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of every epoch so far; half a line at the end, of a killed run, does not count."""
        if not self.metrics_file.exists():
            return []
        *lines, _ = self.metrics_file.read_bytes().split(b"\n")
        try:
            found = [json.loads(line) for line in lines]
        except ValueError as error:
            raise RunError(f"{self.metrics_file} has a line that is no JSON: {error}.") from error
        for number, line in enumerate(found, 1):
            if not isinstance(line, dict) or not isinstance(line.get("epoch"), int):
                raise RunError(
                    f"{self.metrics_file}, line {number}: {json.dumps(line)[:60]} is not the metrics of an epoch, "
                    '{"epoch": N, ...}.'
                )
        return found

    def rewind(self, epoch: int) -> list[dict[str, Any]]:
        """Forget the lines after ``epoch``, which the run is about to write again, and give the others."""
        lines = self.metrics()
        kept = [line for line in lines if line["epoch"] <= epoch]
        if [line["epoch"] for line in kept] != list(range(1, epoch + 1)):
            raise RunError(
                f"{self.metrics_file} has {len(kept)} of the {epoch} epochs that {self.checkpoint.name} has "
                f"seen. Bring it back, or delete {self.path} to start over."
            )
        content = "".join(json.dumps(line) + "\n" for line in kept).encode()
        if not self.metrics_file.exists() or self.metrics_file.read_bytes() != content:
            write_atomic(self.metrics_file, content)
        return kept

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary: from now on the run is finished."""
        write_json(self.summary_file, summary)

    def summary(self) -> dict[str, Any]:
        """The summary of a finished run."""
        if not self.finished:
            raise RunError(f"{self.path} is not finished: it has no {self.summary_file.name}.")
        summary = read_json(self.summary_file)
        if not isinstance(summary.get("last"), dict):
            raise RunError(
                f"{self.summary_file} has no group 'last', the metrics of the last epoch. Delete the file and run "
                "the same command again, which writes it anew."
            )
        return summary

    def _header(self) -> dict[str, Any]:
        if not self.exists:
            raise RunError(f"{self.path} is no run: it has no {self.config_file.name}.")
        header = read_json(self.config_file)
        if header.get("format") != FORMAT:
            raise RunError(
                f"{self.config_file} has format {header.get('format')!r}, this version reads {FORMAT}."
            )
        for name, what in (("recipe", "the recipe it was made from"), ("config", "every field of the run")):
            if name not in header:
                raise RunError(f"{self.config_file} has no {name!r}, {what}: it was edited or cut short.")
        return header


def find_runs(*roots: Path) -> Iterator[RunFolder]:
    """Every run in these folders and below, in the order of their paths."""
    for root in roots:
        if not root.exists():
            raise RunError(f"There is no folder {root}.")
        for config in sorted(root.rglob("config.json")):
            yield RunFolder(config.parent)


def _at(plain: Any, path: str) -> Any:
    for name in path.split("."):
        plain = plain.get(name) if isinstance(plain, dict) else None
    return plain
