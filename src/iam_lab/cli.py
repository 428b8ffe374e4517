"""The ``iam`` command: a table of commands, each imported only when it is called.

A command is a module with ``main(arguments) -> int``, which parses its own arguments (with tyro) and
returns an exit status. ``iam`` itself imports nothing heavy, so that ``iam --help`` answers at once.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from iam_lab.errors import Interrupted, LabError
from iam_lab.lazy import MissingExtraError

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("iam_lab.demo.cli", "learn digits from 100 labels, print a table and draw the pictures"),
    "toy": ("iam_lab.toy.cli", "the paper's toy experiments, on a network whose whole spectrum is known"),
    "train": ("iam_lab.commands.train", "train a recipe, or continue it; any field can be set"),
    "reproduce": ("iam_lab.commands.reproduce", "run what is missing of a table or figure of the paper"),
    "recipes": ("iam_lab.recipes.cli", "list what can be run, with the paper's numbers and the cost"),
    "measure": ("iam_lab.measure.cli", "S_rho, Fisher and Hessian of a run or of any checkpoint"),
    "study": ("iam_lab.commands.study", "does S_rho rank networks as their generalisation gap does?"),
    "sweep": ("iam_lab.commands.sweep", "search fields of a recipe, on a grid or by TPE"),
    "bench": ("iam_lab.commands.bench", "what a training step of each objective costs on this machine"),
    "data": ("iam_lab.commands.data", "list, get and check data sets"),
    "doctor": ("iam_lab.commands.doctor", "what is installed, which devices and data sets there are"),
    "report": ("iam_lab.report.cli", "one page from folders of runs: tables, figures, what is missing"),
}


def usage() -> str:
    """The help text: every command with its one line."""
    width = max(map(len, COMMANDS))
    lines = [f"  iam {name:<{width}}  {what}" for name, (_, what) in COMMANDS.items()]
    return "\n".join(
        [
            "Measure the local inconsistency of networks, and train with it.",
            "",
            *lines,
            "",
            "iam COMMAND --help says more.",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0, 1 for an error of the command, 2 for one of its call."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        sys.stdout.write(usage() + "\n")
        return 0 if given else 2
    if given[0] == "--version":
        from torch_iam.version import __version__

        sys.stdout.write(f"torch-iam {__version__}\n")
        return 0
    name, rest = given[0], given[1:]
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean 'iam {near[0]}'?" if near else ""
        sys.stderr.write(f"iam: no command {name!r}.{hint}\n\n{usage()}\n")
        return 2
    try:
        status: int = importlib.import_module(COMMANDS[name][0]).main(rest)
    except Interrupted as request:
        sys.stderr.write(f"iam {name}: {request}\n")
        return 128 + request.signal
    except (LabError, MissingExtraError) as error:
        sys.stderr.write(f"iam {name}: {error}\n")
        return 1
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] in ("iam_lab", "torch_iam"):
            raise
        sys.stderr.write(f"iam {name} needs {missing.name!r}: pip install 'torch-iam[demo]'\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"iam {name}: interrupted\n")
        return 130
    except BrokenPipeError:  # whoever read us, head for instance, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


if __name__ == "__main__":
    sys.exit(main())
