"""Translate a torch module into a jax function with torchax, if a working version is installed."""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from packaging.version import Version

from solution.system.errors import InputError
from solution.system.wording import how_to_install

OLDEST = Version("0.0.14.dev0")  # earlier versions cannot be imported beside current torch
INSTALL = how_to_install("collect-torch")


def translate(
    path: Path, module: Any, arguments: tuple[Any, ...]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a function of the module's weights and arguments, and the values of these.

    Raises InputError if torchax is not installed, is too old, or does not know an operation.
    """
    _check_installed(path)
    try:
        weights, function = import_module("torchax").extract_jax(module.eval())
    except Exception as error:
        raise InputError(f"{path}: torchax fails: {type(error).__name__}: {error}") from error
    return function, (weights, tuple(_as_numpy(value) for value in arguments))


def _check_installed(path: Path) -> None:
    try:
        found = version("torchax")
    except PackageNotFoundError as error:
        raise InputError(
            f"{path}: a torch module is translated by torchax, which is not installed. {INSTALL}."
        ) from error
    if Version(found) < OLDEST:
        raise InputError(f"{path}: torchax {found} is older than {OLDEST}. {INSTALL}.")


def _as_numpy(value: Any) -> Any:
    return value.detach().numpy() if hasattr(value, "detach") else value
