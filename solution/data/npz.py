"""Read one npz file of the competition into a Graph.

The configurations of a layout graph take up to 2.5 GB as the float32 that the file holds. They are
inflated a block of rows at a time straight into a codebook. No pickle is ever loaded.
"""

import hashlib
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from solution.data.inflate import Advance, DeflatedMember, ignore, read_ahead
from solution.domain import vocabulary
from solution.domain.codebook import Codebook
from solution.domain.codebook_encoder import LayoutEncoder, LayoutValueError, encode
from solution.domain.collection import Collection
from solution.domain.graph import Graph, InvalidGraphError
from solution.system.errors import InputError

BLOCK_BYTES = 2 << 20
LAYOUTS = "node_config_feat"
OPTIONS, OPTION_NAMES = "config_options", "config_option_names"  # our own extension


class ByteSource(Protocol):
    """What can be read from."""

    def read(self, size: int = -1, /) -> bytes:
        """The next `size` bytes, or all that are left; fewer only at the end."""
        ...


REQUIRED = ("node_feat", "node_opcode", "edge_index", "config_runtime")
REQUIRED_OF_KIND = {
    "layout": ("node_config_ids", LAYOUTS),
    "tile": ("config_feat", "config_runtime_normalizers"),
}


def read_graph(path: Path, collection: Collection, advance: Advance = ignore) -> Graph:
    """Read and validate one npz file.

    All-zero runtimes, as in the test split, are "no labels".

    Args:
        advance: called with the compressed bytes of the configurations as they are read.

    Raises:
        InputError: the file is missing, truncated, not an npz, holds pickled arrays, lacks an
            array, or its arrays do not form a graph.
    """
    with _reading(path), zipfile.ZipFile(path) as archive:
        _check_names(archive, collection, path)
        arrays = {name: _read_array(archive, name) for name in REQUIRED}
        if collection.kind == "layout":
            configurable = _integers(_read_array(archive, "node_config_ids"), "node_config_ids")
            configs: Codebook | np.ndarray = _read_layouts(archive, advance)
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
            options=_read_options(archive),
        )


def fingerprint(path: Path) -> str:
    """A hash of what is in the file, from the checksums in its directory, which is read in no time.

    Raises InputError where the file is missing or no zip file.
    """
    with _reading(path), zipfile.ZipFile(path) as archive:
        content = [(m.filename, m.CRC, m.file_size) for m in archive.infolist()]
    return hashlib.sha256(repr(sorted(content)).encode()).hexdigest()[:16]


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
    except MemoryError as error:
        raise InputError(
            f"{path}: the memory is not enough to read it. Close other programs, or use fewer "
            "workers."
        ) from error
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


def _read_options(archive: zipfile.ZipFile) -> np.ndarray | None:
    """The choices (configs, options) int8; None where the file has none, as the competition's."""
    if OPTIONS not in _array_names(archive):
        return None
    names = _read_array(archive, OPTION_NAMES).tolist()
    if names != list(vocabulary.OPTION_NAMES):
        raise ValueError(
            f"{OPTION_NAMES} is {names}, expected {list(vocabulary.OPTION_NAMES)}: it was written "
            "by another version"
        )
    return _integers(_read_array(archive, OPTIONS), OPTIONS).astype(np.int8)


def _read_layouts(archive: zipfile.ZipFile, advance: Advance) -> Codebook:
    """The layout configurations (configs, configurable nodes, 18), block by block."""
    info = archive.getinfo(f"{LAYOUTS}.npy")
    try:
        with archive.open(info) as member:
            shape, fortran_order, dtype = _read_header(member)
            if fortran_order or 0 in shape:  # no block of rows is in one piece
                member.seek(0)
                return encode(np.lib.format.read_array(member, allow_pickle=False))
        if info.compress_type == zipfile.ZIP_DEFLATED:
            return _encode_blocks(DeflatedMember(archive, info, advance), info.file_size)
        with archive.open(info) as member:
            return _encode_blocks(member, info.file_size)
    except LayoutValueError as error:
        place = ", ".join(map(str, error.index))
        raise ValueError(
            f"{LAYOUTS}[{place}] is {error.value}, expected a whole number from "
            f"{vocabulary.LAYOUT_UNSET} to {vocabulary.MAX_RANK - 1}"
        ) from error


def _read_header(member: ByteSource) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(member)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"{LAYOUTS} has npy format {version}, expected 1.0 or 2.0")
    shape, fortran_order, dtype = readers[version](member)
    if len(shape) != 3 or shape[2] != vocabulary.NUM_LAYOUT_FEATURES or dtype.kind not in "fiu":
        raise ValueError(
            f"{LAYOUTS} is {dtype} of shape {shape}, expected float32 of shape "
            f"(configs, configurable nodes, {vocabulary.NUM_LAYOUT_FEATURES})"
        )
    return shape, fortran_order, dtype


def _encode_blocks(member: ByteSource, file_size: int) -> Codebook:
    """Encode the tensor in blocks of whole rows of about BLOCK_BYTES."""
    (configs, nodes, slots), _, dtype = _read_header(member)
    row_bytes = nodes * slots * dtype.itemsize
    if configs * row_bytes > file_size:
        raise ValueError(
            f"{LAYOUTS} ends early: {configs} rows take {configs * row_bytes} bytes, it has "
            f"{file_size}"
        )
    encoder, step = LayoutEncoder(configs, nodes), max(1, BLOCK_BYTES // row_bytes)
    sizes = [min(step, configs - first) * row_bytes for first in range(0, configs, step)]
    for data, size in zip(read_ahead(member.read, sizes), sizes, strict=True):
        if len(data) < size:
            raise ValueError(f"{LAYOUTS} ends early")
        encoder.add(np.frombuffer(data, dtype).reshape(-1, nodes, slots))
    if member.read(1):  # only at the end is the checksum looked at
        raise ValueError(f"{LAYOUTS} holds more than the {configs} rows of its header")
    return encoder.finish()


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
