"""Imports that wait until they are used: ``iam --help`` should not load PyTorch, nor training a plot library.

A package that re-exports its modules' names does so through :func:`exports`; a module that needs a package
of an extra asks for it through :func:`require`, and the user reads which extra to install.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


class MissingExtraError(ImportError):
    """A package that only some features need is not installed, or does not load."""


def require(module: str, *, extra: str, purpose: str) -> Any:
    """The imported ``module``, or an error that names the extra to install.

    >>> require("json", extra="lab", purpose="reading numbers").loads("[1]")
    [1]
    >>> require("no_such_package", extra="vision", purpose="the model 'vit-tiny-4'")
    Traceback (most recent call last):
        ...
    iam_lab.lazy.MissingExtraError: the model 'vit-tiny-4' needs no_such_package, which is not installed.
    Install it with: pip install 'torch-iam[vision]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        raise MissingExtraError(
            f"{purpose} needs {package}, which is not installed. "
            f"Install it with: pip install 'torch-iam[{extra}]'"
        ) from error
    except (ImportError, RuntimeError, OSError) as error:  # installed, but made for another torch or system
        raise MissingExtraError(
            f"{purpose} needs {module}, which is installed but does not load: {error}. "
            f"Its build may not match torch's; try: pip install --force-reinstall 'torch-iam[{extra}]'"
        ) from error


def exports(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for a package whose public names live in its modules.

    Args:
        package: the package's ``__name__``.
        names: public name to the module, relative to the package, that defines it.

    >>> getter, listing = exports("json", {"JSONDecoder": ".decoder"})
    >>> getter("JSONDecoder").__name__, listing()
    ('JSONDecoder', ['JSONDecoder'])
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(names[name], package), name)

    return get, lambda: sorted(names)
