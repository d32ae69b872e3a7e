"""Read one npz file of the competition into a Graph.

The configurations of a layout graph take up to 2.5 GB as the float32 that the file holds. They are
whole numbers from -1 to 5, so they are inflated a block of rows at a time straight into int8.
No pickle is ever loaded.
"""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from solution import vocabulary
from solution.collection import Collection
from solution.errors import InputError
from solution.graph import Graph, InvalidGraphError

BLOCK_BYTES = 8 << 20
REQUIRED = ("node_feat", "node_opcode", "edge_index", "config_runtime")
REQUIRED_OF_KIND = {
    "layout": ("node_config_ids", "node_config_feat"),
    "tile": ("config_feat", "config_runtime_normalizers"),
}


def read_graph(path: Path, collection: Collection) -> Graph:
    """Read and validate one npz file.

    All-zero runtimes, as in the test split, are "no labels".

    Raises:
        InputError: the file is missing, truncated, not an npz, holds pickled arrays, lacks an
            array, or its arrays do not form a graph.
    """
    with _reading(path), zipfile.ZipFile(path) as archive:
        _check_names(archive, collection, path)
        arrays = {name: _read_array(archive, name) for name in REQUIRED}
        if collection.kind == "layout":
            configurable = _integers(_read_array(archive, "node_config_ids"), "node_config_ids")
            configs = _read_layouts(archive)
        else:
            configurable = np.empty(0, np.int64)
            configs = _floats(_read_array(archive, "config_feat"), "config_feat")
            arrays["normalizers"] = _read_array(archive, "config_runtime_normalizers")
        return Graph(
            name=path.stem,
            collection=collection,
            node_features=_floats(arrays["node_feat"], "node_feat"),
            node_opcodes=_opcodes(arrays["node_opcode"]),
            edges=_integers(arrays["edge_index"], "edge_index"),
            configurable=configurable,
            configs=configs,
            runtimes=_runtimes(
                arrays["config_runtime"], arrays.get("normalizers"), configs.shape[:1]
            ),
        )


def detect_kind(path: Path) -> str:
    """Tell layout from tile by the arrays in the file."""
    with _reading(path), zipfile.ZipFile(path) as archive:
        names = _array_names(archive)
        for kind, required in REQUIRED_OF_KIND.items():
            if required[-1] in names or required[0] in names:
                return kind
        found = ", ".join(sorted(names)) or "nothing"
        raise ValueError(f"expected node_config_feat (layout) or config_feat (tile), found {found}")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever a broken file provokes into one message that names the file and the defect."""
    advice = "Get the file again, or take it out of the folder."
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file.") from error
    except InputError:
        raise
    except InvalidGraphError as error:
        raise InputError(f"{path}: " + "; ".join(error.defects) + f". {advice}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{path}: truncated or not an npz file ({error}). {advice}") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}. {advice}") from error
    except Exception as error:  # a flipped bit in a header can provoke anything
        kind = type(error).__name__
        raise InputError(f"{path}: cannot be read ({kind}: {error}). {advice}") from error


def _array_names(archive: zipfile.ZipFile) -> set[str]:
    """What np.load would offer; a member in a folder or with another suffix is no array."""
    return {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}


def _check_names(archive: zipfile.ZipFile, collection: Collection, path: Path) -> None:
    names = _array_names(archive)
    missing = [name for name in REQUIRED + REQUIRED_OF_KIND[collection.kind] if name not in names]
    if missing:
        raise InputError(
            f"{path}: a file of {collection.name} needs the array {', '.join(missing)}, found "
            f"{', '.join(sorted(names)) or 'nothing'}. Is it in the right collection's folder?"
        )


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f"{name}.npy") as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _read_layouts(archive: zipfile.ZipFile) -> np.ndarray:
    """The layout configurations (configs, configurable nodes, 18) as int8, block by block."""
    with archive.open("node_config_feat.npy") as member:
        shape, fortran_order, dtype = _read_header(member)
        if len(shape) != 3 or dtype.kind not in "fiu":
            raise ValueError(
                f"node_config_feat is {dtype} of shape {shape}, expected float32 of shape "
                f"(configs, configurable nodes, {vocabulary.NUM_LAYOUT_FEATURES})"
            )
        # In Fortran order the file holds the transposed tensor in C order.
        stored = np.empty(shape[::-1] if fortran_order else shape, np.int8)
        _fill_layouts(stored, member, dtype, reverse=fortran_order)
    return np.ascontiguousarray(stored.T) if fortran_order else stored


def _read_header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(member)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"node_config_feat has npy format {version}, expected 1.0 or 2.0")
    return readers[version](member)


def _fill_layouts(stored: np.ndarray, member: IO[bytes], dtype: np.dtype, *, reverse: bool) -> None:
    first = 0
    for block in _blocks(member, stored.shape, dtype):
        target = stored[first : first + len(block)]
        with np.errstate(invalid="ignore"):
            target[...] = block
        wrong = (target != block) | (target < -1) | (target >= vocabulary.MAX_RANK)
        if wrong.any():
            inside = np.argwhere(wrong)[0]
            place = [first + inside[0], *inside[1:]]
            shown = ", ".join(map(str, reversed(place) if reverse else place))
            raise ValueError(
                f"node_config_feat[{shown}] is {block[tuple(inside)]}, expected a whole number "
                f"from {vocabulary.LAYOUT_UNSET} to {vocabulary.MAX_RANK - 1}"
            )
        first += len(block)


def _blocks(member: IO[bytes], shape: tuple[int, ...], dtype: np.dtype) -> Iterator[np.ndarray]:
    """Yield the array in blocks of whole rows of about BLOCK_BYTES."""
    row_bytes = int(np.prod(shape[1:])) * dtype.itemsize
    if row_bytes == 0:
        return
    rows_left, step = shape[0], max(1, BLOCK_BYTES // row_bytes)
    while rows_left > 0:
        rows = min(step, rows_left)
        data = member.read(rows * row_bytes)
        if len(data) < rows * row_bytes:
            raise ValueError(
                f"node_config_feat ends early: {rows_left} rows of {shape[0]} are not there"
            )
        yield np.frombuffer(data, dtype).reshape(rows, *shape[1:])
        rows_left -= rows


def _floats(array: np.ndarray, name: str, dtype: type = np.float32) -> np.ndarray:
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} holds {array.dtype}, expected numbers")
    return array.astype(dtype)


def _integers(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} holds {array.dtype}, expected whole numbers")
    return array.astype(np.int64)


def _opcodes(array: np.ndarray) -> np.ndarray:
    opcodes = _integers(array, "node_opcode")
    unknown = np.unique(opcodes[(opcodes < 0) | (opcodes >= vocabulary.VIRTUAL)])
    if len(unknown):
        raise ValueError(
            f"node_opcode holds the unknown opcode {', '.join(map(str, unknown[:5]))}, expected "
            f"0 to {vocabulary.VIRTUAL - 1}"
        )
    return opcodes.astype(np.uint8)


def _runtimes(
    nanoseconds: np.ndarray, normalizers: np.ndarray | None, expected: tuple[int, ...]
) -> np.ndarray | None:
    runtimes = _floats(nanoseconds, "config_runtime", np.float64)
    if expected and runtimes.shape != expected:
        raise ValueError(f"config_runtime has shape {runtimes.shape}, expected {expected}")
    if not runtimes.any():
        return None
    if normalizers is None:
        return runtimes
    divisor = _floats(normalizers, "config_runtime_normalizers", np.float64)
    if divisor.shape != runtimes.shape or not (divisor > 0).all():
        raise ValueError(
            f"config_runtime_normalizers has shape {divisor.shape} and the minimum "
            f"{divisor.min(initial=np.inf)}, expected {runtimes.shape} and positive"
        )
    return runtimes / divisor
