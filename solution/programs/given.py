"""Read a user's arguments for a program: arrays named by the parameters' numbers or names.

numpy.savez("arguments.npz", *arrays)                    arrays in the order of the parameters
numpy.savez("arguments.npz", **{"0": first, "w": other})  first for parameter 0, other for w

A parameter w of a Python function is called w.1 in its module. Both names are accepted.
"""

import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from solution.data.npz_arrays import ADVICE, array_names, open_arrays, read_array
from solution.domain.graph import show_shape
from solution.programs import arguments
from solution.programs.program import Program
from solution.system.errors import InputError
from solution.system.wording import join_names

KINDS = "bfiucV"  # numpy's type kinds; bfloat16 and narrower types are stored as raw bytes (V)


def give_arguments(program: Program, path: Path | None, megabytes: int) -> Program:
    """Return the program with the arguments in the npz file `path` (None: return it unchanged). An
    array must have its parameter's shape, and numbers that the parameter's type can hold. Raises
    InputError if the file is unreadable, arrays are missing, superfluous or do not fit, or all
    arguments take more than `megabytes`."""
    if path is None:
        return program
    arguments.check_memory(program.module, program.name, megabytes)
    names, shapes = _list_names(program.module), arguments.find_parameters(program.module)
    with _advising(names, shapes), open_arrays(path) as archive:
        found = array_names(archive)
        keys = [_find_key(accepted, found, path) for accepted in names]
        left_over = sorted(found - set(keys))
        if left_over:
            raise InputError(
                f"{path}: holds {', '.join(left_over)}, which {program.name} has no parameter for."
            )
        arrays = [_read(archive, key, shape) for key, shape in zip(keys, shapes, strict=True)]
    return replace(program, given=list[np.ndarray | None](arrays))


def _list_names(module: Any) -> list[tuple[str, ...]]:
    """Return for each parameter the names that its array may have: the parameter's number, arr_ and
    the number, the parameter's name in the module, and this name without .1 or another number at
    its end, as in a Python program, unless that is also another parameter's."""
    count = len(arguments.find_parameters(module))
    names = [""] * count
    if not arguments.is_tupled(module):
        for instruction in arguments.find_entry(module).instructions:
            if instruction.opcode == "parameter":
                names[instruction.parameter_number] = instruction.name
    keys = [[str(number), f"arr_{number}", name] for number, name in enumerate(names)]
    for one in keys:
        one.append(re.sub(r"\.[0-9]+$", "", one[-1]))
    used = Counter(key for one in keys for key in set(one))
    for one in keys:
        if used[one[-1]] > 1:
            one.pop()
    return [tuple(key for key in dict.fromkeys(one) if key) for one in keys]


def _find_key(names: tuple[str, ...], found: set[str], path: Path) -> str:
    keys = [name for name in names if name in found]
    if len(keys) != 1:
        have = f"several: {', '.join(keys)}" if keys else f"none of these names ({_list(found)})"
        raise InputError(
            f"{path}: expected one array for parameter {names[0]}, called {' or '.join(names)}, "
            f"found {have}."
        )
    return keys[0]


def _read(archive: zipfile.ZipFile, key: str, shape: Any) -> np.ndarray:
    wanted = arguments.find_dtype(shape, key)
    array = read_array(archive, key, tuple(shape.dimensions), KINDS)
    if array.dtype.kind == "V":
        if array.dtype.itemsize != wanted.itemsize or wanted.kind in "bfiuc":
            raise ValueError(f"{key} holds {array.dtype}, expected {wanted}")
        return array.view(wanted)
    if array.dtype == wanted:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(wanted)
    is_whole = wanted.kind in "biu" or "int" in wanted.name
    if (array.dtype.kind == "c" and wanted.kind != "c") or (
        is_whole and not np.array_equal(cast.astype(array.dtype), array)
    ):
        raise ValueError(f"{key} holds {array.dtype}, expected {wanted}")
    return cast


@contextmanager
def _advising(names: list[tuple[str, ...]], shapes: list[Any]) -> Iterator[None]:
    """Add to an InputError in the block which arrays the file must hold. The advice of the reader
    of graphs, which speaks of data to get again, is left out."""
    try:
        yield
    except InputError as error:
        wanted = [
            f"{' or '.join(keys)} ({arguments.find_dtype(shape, keys[0])} "
            f"{show_shape(tuple(shape.dimensions))})"
            for keys, shape in zip(names, shapes, strict=True)
        ]
        what = f"an array for each of {join_names(wanted)}" if wanted else "no array"
        said = str(error).removesuffix(f" {ADVICE}")
        raise InputError(f"{said} Write the file with numpy.savez, with {what}.") from error


def _list(found: set[str]) -> str:
    return ", ".join(sorted(found)[:5]) or "it is empty"
