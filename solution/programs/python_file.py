"""Read a Python file with a jax function or a torch module, in a child process. An example:

    \"\"\"Ten lines are enough: `program` is the function, `arguments` what it is called with.\"\"\"

    import jax.numpy as jnp

    def program(x, weights):
        return jnp.tanh(x @ weights)

    arguments = (jnp.ones((64, 128)), jnp.ones((128, 32)))

`arguments` may also be a function that returns them. `program` may be a torch module; then torchax
translates it. The file can import files in its folder, as if Python ran it.
"""

import importlib.util
import random
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from packaging.version import Version

from solution.programs.compiler import Compiler, shorten
from solution.programs.hlo.messages import MESSAGES
from solution.programs.obstacles import find_obstacle
from solution.system.errors import InputError
from solution.system.wording import how_to_install

# oldest supported torchax: earlier ones fail to import with current torch
OLDEST = Version("0.0.14.dev0")
INSTALL = how_to_install("collect-torch")

EXPECTED = "expected a function `program` and a tuple `arguments` (or a function that returns it)"
TRACED = (
    "Expected a function that jax traces with arrays alone: what stays a Python value, such as a "
    "name or a static number, is set in `program`, as functools.partial does."
)


def lower_file(
    compiler: Compiler, path: Path, platform: str = "cpu"
) -> tuple[bytes, list[np.ndarray | None]]:
    """Return a Python file's serialized module, and its arguments (None for one with only shape and
    type). The file may change jax, the environment and imported modules, so this process must not
    be used for other files. Raises InputError if the file has no program, or if importing or
    tracing it fails."""
    sys.path.insert(0, str(path.absolute().parent))
    _seed()
    function, arguments = _import_program(path)
    try:
        return compiler.lower(function, arguments, platform)
    except Exception as error:
        # jax lowers callbacks for the platform of its own device only
        is_elsewhere = platform != "cpu" and isinstance(error, ValueError)
        if is_elsewhere and (obstacle := _find_obstacle(compiler, function, arguments)):
            raise InputError(f"{path}: {obstacle}") from error
        raise _failed(path, "tracing `program` with `arguments`", error, TRACED) from error


def _find_obstacle(
    compiler: Compiler, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> str:
    """Return why a function that jax does not lower for another platform cannot run on one device,
    if its module for the CPU shows that; "" otherwise."""
    try:
        module, _ = compiler.lower(function, arguments)
    except Exception:  # the first error says more
        return ""
    return find_obstacle(MESSAGES["Module"].FromString(module))


def _seed() -> None:
    """Seed global random generators, so that a file draws the same numbers each time."""
    random.seed(0)
    np.random.seed(0)


def _import_program(path: Path) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    spec = importlib.util.spec_from_file_location(f"fastslow_program_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: expected a Python file that can be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # needed by dataclasses, which look up their module there
    try:
        spec.loader.exec_module(module)
        arguments = getattr(module, "arguments", None)
        arguments = arguments() if callable(arguments) else arguments
    except (Exception, SystemExit) as error:  # a script may exit Python when it is imported
        raise _failed(path, "importing it", error) from error
    program = getattr(module, "program", None)
    if not callable(program) or not isinstance(arguments, tuple | list):
        raise InputError(f"{path}: {EXPECTED}, found {program!r} and {type(arguments).__name__}.")
    if hasattr(program, "named_parameters"):
        return _translate(path, program, tuple(arguments))
    return program, tuple(arguments)


def _failed(path: Path, what: str, error: BaseException, advice: str = "") -> InputError:
    said = f"{type(error).__name__}: {shorten(error)}".rstrip(". ")
    return InputError(f"{path}: {what} failed: {said}. {advice}".rstrip())


def _translate(
    path: Path, module: Any, arguments: tuple[Any, ...]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a torch module as a jax function of (weights, arguments), and its (weights,
    arguments). Raises InputError if torchax is missing, old, or does not know an operation."""
    _check_torchax(path)
    try:
        weights, function = import_module("torchax").extract_jax(module.eval())
    except Exception as error:
        raise InputError(f"{path}: torchax fails: {type(error).__name__}: {error}") from error
    return function, (weights, tuple(_as_numpy(value) for value in arguments))


def _check_torchax(path: Path) -> None:
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
