"""Write npz files in the competition's format; equal arrays give equal bytes.

An array may be given in blocks of rows, so that a large one is never whole in memory.
"""

import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from solution.system.files import replace_file


@dataclass(frozen=True)
class Blocks:
    """An array that is given in blocks of rows, so that it is never whole in memory. The blocks in
    `rows`, one after the other, form an array of the given shape."""

    shape: tuple[int, ...]
    dtype: np.dtype
    rows: Iterable[np.ndarray]


def write_npz(arrays: Mapping[str, np.ndarray | Blocks], path: Path) -> Path:
    """Write the arrays compressed, in their order, atomically; np.load can read the file. The file
    contains no time stamps, so equal arrays give equal bytes."""
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
