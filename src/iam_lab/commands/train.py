"""``iam train RECIPE --any.field value``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from iam_lab.commands.parsing import as_flags, changed_fields, parsed
from iam_lab.recipes.registry import find_recipe
from iam_lab.recipes.schema import Config
from iam_lab.runs.folder import RunFolder
from iam_lab.runs.naming import folder_of

USAGE = """usage: iam train RECIPE [--out DIR] [--device DEVICE] [--tensorboard] [--any.field VALUE ...]

Train a recipe, or continue it where it was stopped. 'iam recipes' lists the recipes;
'iam train RECIPE --help' lists every field with the value it has there.
"""


@dataclass(frozen=True)
class Arguments:
    """Train a recipe, or continue it: the same command finds its own run again.

    Attributes:
        config: fields of the recipe.
        out: folder of the run; by default ROOT/RECIPE/seedN, with what was changed in its name.
        root: folder of all runs.
        device: auto, cpu, cuda:0, ...
        tensorboard: write TensorBoard events into the run's folder.
        quiet: print nothing until the end.
    """

    config: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)
    out: Path | None = None
    root: Path = Path("runs")
    device: str = "auto"
    tensorboard: bool = False
    quiet: bool = False


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    if not arguments or arguments[0].startswith("-"):
        help_wanted = bool(arguments) and arguments[0] in ("-h", "--help")
        (sys.stdout if help_wanted else sys.stderr).write(USAGE)
        return 0 if help_wanted else 2
    recipe = find_recipe(arguments[0])
    default = Arguments(config=recipe.config)
    given = parsed(Arguments, f"train {recipe.name}", as_flags(arguments[1:]), default=default)
    told = changed_fields(recipe.config, given.config)
    folder = RunFolder(given.out or folder_of(given.root, recipe.name, given.config.seed, told))
    was_finished = folder.finished

    from iam_lab.commands.show import outcome, watchers_for
    from iam_lab.train.run import train

    summary = train(
        folder,
        given.config,
        recipe=recipe.name,
        changed=told,
        device=given.device,
        watchers=watchers_for(folder, recipe.name, quiet=given.quiet, tensorboard=given.tensorboard),
    )
    state = "was finished already" if was_finished else "finished"
    sys.stdout.write(f"{folder.path} {state}: {outcome(summary)}\n")
    return 0
