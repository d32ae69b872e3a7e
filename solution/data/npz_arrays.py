"""Read the arrays of one npz file; their headers are checked before anything is inflated.

A few megabytes of zip may inflate to as many gigabytes, so shape, type and size are checked first.
Pickled arrays are never loaded.
"""

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from solution.data.inflate import DeflatedMember, read_ahead
from solution.domain import vocabulary
from solution.domain.codebook import Codebook, LayoutEncoder, LayoutValueError, encode
from solution.domain.graph import InvalidGraphError, matches, show_shape
from solution.system.errors import InputError
from solution.system.files import open_regular
from solution.system.names import check_text
from solution.system.zips import check_directory

BLOCK_BYTES = 2 << 20  # approximate bytes of layouts that are inflated and encoded at a time
LAYOUTS = "node_config_feat"
# Limit for arrays that are read as a whole. Layouts in C order are read in blocks, with the limit
# MAX_LAYOUT_BYTES. In the competition, the largest layout tensor has 2.5 GB, the largest other
# array 24 MB.
MAX_ARRAY_BYTES = 2 << 30
MAX_LAYOUT_BYTES = 64 << 30
NUMBERS, WHOLE_NUMBERS = "fiu", "iu"  # kinds of numpy dtypes
ADVICE = "Get the file again, or take it out of the folder."
Member = IO[bytes] | DeflatedMember  # the content of a zip member


@contextmanager
def open_arrays(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an npz file for a `with` block, and turn each error in the block into an InputError that
    names the file and the defect. Raises InputError if the file is missing, no regular file or no
    zip file."""
    # overflow becomes inf, which is validated later
    with _naming(path), np.errstate(over="ignore"):
        check_text(path)  # the file's name becomes the graph's name
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            check_directory(archive, file)
            yield archive


def array_names(archive: zipfile.ZipFile) -> set[str]:
    """Return the names of the arrays: all members that end in .npy, without that ending."""
    return {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}


def read_array(
    archive: zipfile.ZipFile, name: str, expected: tuple[int | None, ...], kinds: str = NUMBERS
) -> np.ndarray:
    """Read an array of the `expected` shape, in which None allows any size. Raises ValueError if
    the shape differs, the dtype's kind is not in `kinds`, or the array is too large; raises the
    errors of zipfile if it is damaged."""
    with archive.open(f"{name}.npy") as member:
        shape, _, dtype = _read_header(member, name)
    if dtype.kind not in kinds:
        wanted = "whole numbers" if kinds == WHOLE_NUMBERS else "numbers"
        raise ValueError(f"{name} holds {dtype}, expected {wanted}")
    if not matches(shape, expected):
        raise ValueError(f"{name} has shape {show_shape(shape)}, expected {show_shape(expected)}")
    _check_size(shape, dtype, name, MAX_ARRAY_BYTES)
    with archive.open(f"{name}.npy") as member:
        array = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):  # reading to the end also checks the checksum
            raise ValueError(f"{name} holds more than the shape {show_shape(shape)} of its header")
    return array


def read_layouts(archive: zipfile.ZipFile, configs: int, nodes: int) -> Codebook:
    """Return the layout configurations (configs, configurable nodes, 18), encoded block by block.

    Args:
        configs: the expected number of configurations.
        nodes: the expected number of configurable nodes.

    Raises:
        ValueError: the shape or type differs, or a value is not in a layout's range.
    """
    info = archive.getinfo(f"{LAYOUTS}.npy")
    try:
        with archive.open(info) as member:
            shape, fortran_order, dtype = _read_header(member, LAYOUTS)
            _check_layouts(shape, dtype, configs, nodes)
            if fortran_order or 0 in shape:  # rows are not contiguous, or the array is empty
                _check_size(shape, dtype, LAYOUTS, MAX_ARRAY_BYTES)
                member.seek(0)
                return encode(np.lib.format.read_array(member, allow_pickle=False))
        if info.compress_type == zipfile.ZIP_DEFLATED:
            return _encode_blocks(DeflatedMember(archive, info), info.file_size)
        with archive.open(info) as member:
            return _encode_blocks(member, info.file_size)
    except LayoutValueError as error:
        index = ", ".join(map(str, error.index))
        raise ValueError(
            f"{LAYOUTS}[{index}] is {error.value}, expected a whole number from "
            f"{vocabulary.LAYOUT_UNSET} to {vocabulary.MAX_RANK - 1}"
        ) from error


@contextmanager
def _naming(path: Path) -> Iterator[None]:
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
        raise InputError(f"{path}: " + "; ".join(error.defects) + f". {ADVICE}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{path}: truncated or not an npz file ({error}). {ADVICE}") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}. {ADVICE}") from error
    except Exception as error:  # a flipped bit in a header can cause any exception
        kind = type(error).__name__
        raise InputError(f"{path}: cannot be read ({kind}: {error}). {ADVICE}") from error


def _read_header(member: Member, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(member)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"{name} has npy format {version}, expected 1.0 or 2.0")
    return readers[version](member)


def _check_layouts(shape: tuple[int, ...], dtype: np.dtype, configs: int, nodes: int) -> None:
    expected = (configs, nodes, vocabulary.NUM_LAYOUT_FEATURES)
    if shape != expected or dtype.kind not in NUMBERS:
        raise ValueError(
            f"{LAYOUTS} is {dtype} of shape {show_shape(shape)}, expected float32 of shape "
            f"{show_shape(expected)}: config_runtime has {configs} configurations, node_config_ids "
            f"{nodes} nodes"
        )
    _check_size(shape, dtype, LAYOUTS, MAX_LAYOUT_BYTES)


def _check_size(shape: tuple[int, ...], dtype: np.dtype, name: str, most: int) -> None:
    size = math.prod(shape) * dtype.itemsize
    if size > most:
        raise ValueError(f"{name} takes {size:,} bytes, expected at most {most:,}")


def _encode_blocks(member: Member, file_size: int) -> Codebook:
    """Encode the layouts in `member` (`file_size` bytes when inflated) block by block. A block has
    about BLOCK_BYTES and whole rows (configurations)."""
    (configs, nodes, slots), _, dtype = _read_header(member, LAYOUTS)
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
    if member.read(1):  # reading to the end also checks the checksum
        raise ValueError(f"{LAYOUTS} holds more than the {configs} rows of its header")
    return encoder.finish()
