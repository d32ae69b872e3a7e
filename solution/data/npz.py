"""Read one npz file of the competition into a Graph, and write npz files in this format.

The configurations of a layout graph take up to 2.5 GB as float32, the type in the file. They are
inflated block by block straight into a codebook, so the whole tensor is never in memory.
"""

import hashlib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from solution.data.npz_arrays import (
    LAYOUTS,
    WHOLE_NUMBERS,
    array_names,
    open_arrays,
    read_array,
    read_layouts,
)
from solution.domain import vocabulary
from solution.domain.codebook import Codebook
from solution.domain.collection import Collection
from solution.domain.graph import TIMED, Graph
from solution.system.errors import InputError
from solution.system.files import replace_file

# Arrays that only this project adds to the files; readers of the competition's files skip them.
OPTIONS, OPTION_NAMES = "config_options", "config_option_names"
# array with the source of the runtimes (solution.domain.graph); without it, they were measured
LABEL_SOURCE = "label_source"
LARGEST_SIZE = 2**31  # upper bound on a tile's size in each dimension
REQUIRED = ("node_feat", "node_opcode", "edge_index", "config_runtime")
REQUIRED_OF_KIND = {
    "layout": ("node_config_ids", LAYOUTS),
    "tile": ("config_feat", "config_runtime_normalizers"),
}


def read_graph(path: Path, collection: Collection) -> Graph:
    """Read and validate one npz file.

    Runtimes that are all zero, as in the test split, mean that the graph has no labels.

    Raises:
        InputError: the file is missing, truncated, no regular file, not an npz, holds pickled
            arrays, lacks an array, or its arrays do not form a graph.
    """
    with open_arrays(path) as archive:
        _check_names(archive, collection, path)
        nanoseconds = read_array(archive, "config_runtime", (None,)).astype(np.float64)
        configs: Codebook | np.ndarray
        if collection.kind == "layout":
            configurable = _read_integers(archive, "node_config_ids", (None,))
            configs = read_layouts(archive, len(nanoseconds), len(configurable))
        else:
            configurable = np.empty(0, np.int64)
            configs = _read_tiles(archive, len(nanoseconds))
            nanoseconds = nanoseconds / _read_normalizers(archive, nanoseconds)
        opcodes = read_opcodes(archive)
        shape = (len(opcodes), vocabulary.NUM_NODE_FEATURES)
        return Graph(
            name=path.stem,
            collection=collection,
            node_features=read_array(archive, "node_feat", shape).astype(np.float32),
            node_opcodes=opcodes,
            edges=_read_integers(archive, "edge_index", (None, 2)),
            configurable=configurable,
            configs=configs,
            runtimes=nanoseconds if nanoseconds.any() else None,
            label_source=_read_source(archive),
            **_read_options(archive),
        )


def fingerprint(path: Path) -> str:
    """Return a hash of the file's contents, made quickly from the checksums in the zip directory.
    Raises InputError if the file is missing or no zip file."""
    with open_arrays(path) as archive:
        content = [(m.filename, m.CRC, m.file_size) for m in archive.infolist()]
    return hashlib.sha256(repr(sorted(content)).encode()).hexdigest()[:16]


def detect_kind(path: Path) -> str:
    """Return "layout" or "tile", depending on the arrays in the file."""
    with open_arrays(path) as archive:
        names = array_names(archive)
        for kind, required in REQUIRED_OF_KIND.items():
            if required[-1] in names or required[0] in names:
                return kind
        found = ", ".join(sorted(names)) or "nothing"
        raise ValueError(f"expected node_config_feat (layout) or config_feat (tile), found {found}")


def _check_names(archive: zipfile.ZipFile, collection: Collection, path: Path) -> None:
    names = array_names(archive)
    missing = [name for name in REQUIRED + REQUIRED_OF_KIND[collection.kind] if name not in names]
    if missing:
        arrays = "array" if len(missing) == 1 else "arrays"
        raise InputError(
            f"{path}: a file of {collection.name} needs the {arrays} {', '.join(missing)}, found "
            f"{', '.join(sorted(names)) or 'nothing'}. Is it in the right collection's folder?"
        )


def _check_others(archive: zipfile.ZipFile) -> None:
    """Raise BadZipFile if a member that is not read has a damaged name, because an optional array
    would then seem to be missing. A zip file names each member in its directory and in the
    member's header; opening the member compares the two names, as for arrays that are read."""
    known = {f"{name}.npy" for names in REQUIRED_OF_KIND.values() for name in (*REQUIRED, *names)}
    for member in archive.infolist():
        if member.filename not in known:
            archive.open(member).close()


def _read_integers(
    archive: zipfile.ZipFile, name: str, shape: tuple[int | None, ...]
) -> np.ndarray:
    return read_array(archive, name, shape, WHOLE_NUMBERS).astype(np.int64)


def _read_source(archive: zipfile.ZipFile) -> str:
    """Return the source of the runtimes (see solution.domain.graph); TIMED if none is given."""
    if LABEL_SOURCE not in array_names(archive):
        return TIMED
    return str(read_array(archive, LABEL_SOURCE, (), "U"))


def _read_options(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return the compile options as arguments of Graph; {} for files without options, such as the
    competition's."""
    present = {OPTIONS, OPTION_NAMES} & array_names(archive)
    if not present:
        _check_others(archive)
        return {}
    if len(present) == 1:
        raise ValueError(f"has the array {present.pop()} alone, expected {OPTIONS}, {OPTION_NAMES}")
    names = read_array(archive, OPTION_NAMES, (None,), "U").tolist()
    known = find_option_set(names)
    if known is None:
        raise ValueError(
            f"{OPTION_NAMES} is {names}, expected {list(vocabulary.OPTION_NAMES)}: it was written "
            "by another version"
        )
    options = _read_integers(archive, OPTIONS, (None, len(names))).clip(-1, 127).astype(np.int8)
    # the file may lack options that later versions added: they become 0
    padding = ((0, 0), (0, len(known) - len(names)))
    return {"options": np.pad(options, padding), "option_names": known}


def find_option_set(names: Sequence[str]) -> tuple[str, ...] | None:
    """Return all option names of the target (CPU or TPU) whose first options are `names`; None if
    there is no such target."""
    sets = [(*options,) for options in vocabulary.OPTION_SETS.values()]
    return next((options for options in sets if options[: len(names)] == (*names,)), None)


def read_opcodes(archive: zipfile.ZipFile) -> np.ndarray:
    """Return the opcodes (nodes,) uint8 of a layout or tile file; ValueError if one is unknown."""
    opcodes = _read_integers(archive, "node_opcode", (None,))
    unknown = np.unique(opcodes[(opcodes < 0) | (opcodes >= vocabulary.VIRTUAL)])
    if len(unknown):
        raise ValueError(
            f"node_opcode holds the unknown opcode {', '.join(map(str, unknown[:5]))}, expected "
            f"0 to {vocabulary.VIRTUAL - 1}"
        )
    return opcodes.astype(np.uint8)


def _read_tiles(archive: zipfile.ZipFile, configs: int) -> np.ndarray:
    """Return the tile features (configs, 24) float32; ValueError if a tile's size is out of range.
    The features that are sums and products of sizes are not checked, because they may have
    overflowed when they were computed."""
    shape = (configs, vocabulary.NUM_TILE_FEATURES)
    tiles = read_array(archive, "config_feat", shape).astype(np.float32)
    for block in vocabulary.TILE_BLOCKS.values():
        sizes = tiles[:, block][:, : vocabulary.MAX_RANK]
        wrong = np.argwhere(~((sizes >= 0) & (sizes <= LARGEST_SIZE)))  # finds NaN, too
        if len(wrong):
            row, column = map(int, wrong[0])
            raise ValueError(
                f"config_feat[{row}, {block.start + column}] is {sizes[row, column]:g}, expected a "
                f"size from 0 to {LARGEST_SIZE}"
            )
    return tiles


def _read_normalizers(archive: zipfile.ZipFile, nanoseconds: np.ndarray) -> np.ndarray:
    """Return the divisors (configs,) of the runtimes; all 1 if there are no labels. Raises
    ValueError unless the divisors of a labelled graph are positive."""
    name = "config_runtime_normalizers"
    normalizers = read_array(archive, name, nanoseconds.shape).astype(np.float64)
    if not nanoseconds.any():
        return np.ones_like(normalizers)
    if not (normalizers > 0).all():
        raise ValueError(f"{name} has the minimum {normalizers.min()}, expected positive numbers")
    return normalizers


@dataclass(frozen=True)
class Blocks:
    """An array to write, given in blocks of rows, so that it is never whole in memory. The blocks
    in `rows`, concatenated, form an array of the given shape."""

    shape: tuple[int, ...]
    dtype: np.dtype
    rows: Iterable[np.ndarray]


def write_npz(arrays: Mapping[str, np.ndarray | Blocks], path: Path) -> Path:
    """Write the arrays into a compressed npz file, atomically, and return `path`. The file contains
    no time stamps, so equal arrays give equal bytes."""
    with (
        replace_file(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, array in arrays.items():
            blocks = array if isinstance(array, Blocks) else _one_block(array)
            _write_member(archive, name, blocks)
    return path


def _one_block(array: np.ndarray) -> Blocks:
    # reshape, because ascontiguousarray turns scalars into vectors
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    return Blocks(contiguous.shape, contiguous.dtype, [contiguous])


def _write_member(archive: zipfile.ZipFile, name: str, blocks: Blocks) -> None:
    header = {
        "descr": np.lib.format.dtype_to_descr(blocks.dtype),
        "fortran_order": False,
        "shape": blocks.shape,
    }
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for rows in blocks.rows:
            member.write(rows.astype(blocks.dtype, copy=False).tobytes())
