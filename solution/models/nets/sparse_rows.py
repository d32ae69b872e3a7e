"""Sparse matrices by rows, as they are counted out: who multiplies with them decides by what."""

import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

LOOPS = "scipy.sparse._sparsetools"


class SparseRows(NamedTuple):
    """A sparse matrix by rows: row i has the entries starts[i] : starts[i + 1].

    Entries may be in any order, and those of one row and column add up: scipy's matrices, which
    sort and check themselves, take longer to make than to multiply. Both indices are of one type:
    half as wide they are read faster.
    """

    starts: np.ndarray  # (rows + 1,) int32 or int64
    columns: np.ndarray  # (entries,) the same
    values: np.ndarray  # (entries,) float32
    num_columns: int

    def transposed(self) -> "SparseRows":
        """The matrix turned round."""
        from scipy.sparse import csr_array  # takes long to import, and who predicts does not ask

        num_rows = len(self.starts) - 1
        shape = (num_rows, self.num_columns)
        turned = csr_array(csr_array((self.values, self.columns, self.starts), shape=shape).T)
        return SparseRows(turned.indptr, turned.indices, turned.data, num_rows)

    def cut(self, rows: slice) -> "SparseRows":
        """Some rows that follow each other."""
        return self._replace(starts=self.starts[rows.start : rows.stop + 1])

    def product(self, x: np.ndarray) -> np.ndarray:
        """The product with x (columns, width) float32: (rows, width) float32."""
        return sum_entries(self.starts, self.columns, x, self.values)


def sum_entries(
    starts: np.ndarray, columns: np.ndarray, x: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Sums (rows, width) of the rows of x (columns, width) that each row names, as x is typed.

    Args:
        starts: (rows + 1,): row i names columns[starts[i] : starts[i + 1]].
        weights: (entries,), as x is typed; by default 1.
    """
    sums = np.zeros((len(starts) - 1, x.shape[1]), x.dtype)
    values = np.ones(len(columns), x.dtype) if weights is None else weights
    kind = np.result_type(starts, columns)
    index = (np.asarray(part, kind) for part in (starts, columns))
    _load_loops().csr_matvecs(*sums.shape[:1], *x.shape, *index, values, x.ravel(), sums.ravel())
    return sums


@cache
def _load_loops() -> ModuleType:
    """scipy's loops in C, without what scipy.sparse imports besides: a quarter of a second."""
    if LOOPS in sys.modules:
        return sys.modules[LOOPS]
    found = find_spec("scipy")
    folder = Path(found.origin if found and found.origin else "").parent / "sparse"
    for suffix in EXTENSION_SUFFIXES:
        spec = spec_from_file_location(LOOPS, folder / f"_sparsetools{suffix}")
        if spec is not None and spec.loader is not None and Path(spec.origin or "").is_file():
            loops = module_from_spec(spec)
            spec.loader.exec_module(loops)
            return loops
    from scipy.sparse import _sparsetools  # where a version of scipy has them elsewhere

    return _sparsetools


def select(positions: np.ndarray, size: int) -> SparseRows:
    """The matrix (n, size) whose product with x is x[positions]."""
    count = len(positions)
    return SparseRows(
        np.arange(count + 1, dtype=np.int32),
        positions.astype(np.int32),
        np.ones(count, np.float32),
        size,
    )
