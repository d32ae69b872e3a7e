"""Sparse matrices as plain CSR arrays, which callers multiply with numpy or with torch tensors."""

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
    """A sparse matrix in CSR format: row i has the entries starts[i] : starts[i + 1].

    Entries of a row may be in any order, and entries of one column add up. scipy's matrix classes
    are not used because they sort and check their entries, which takes longer than the product.
    `starts` and `columns` have the same integer type; int32 is read faster.
    """

    starts: np.ndarray  # (rows + 1,) int32 or int64: first entry of each row, then their number
    columns: np.ndarray  # (entries,), the type of `starts`: column of each entry
    values: np.ndarray  # (entries,) float32: value of each entry
    num_columns: int

    def transposed(self) -> "SparseRows":
        """Return the transposed matrix."""
        from scipy.sparse import csr_array  # slow to import, and prediction does not need it

        num_rows = len(self.starts) - 1
        shape = (num_rows, self.num_columns)
        turned = csr_array(csr_array((self.values, self.columns, self.starts), shape=shape).T)
        return SparseRows(turned.indptr, turned.indices, turned.data, num_rows)

    def cut(self, rows: slice) -> "SparseRows":
        """Return the matrix of a range of rows; `columns` and `values` are shared, not copied."""
        return self._replace(starts=self.starts[rows.start : rows.stop + 1])

    def product(self, x: np.ndarray) -> np.ndarray:
        """Return the product with x (columns, width) float32: (rows, width) float32."""
        return sum_entries(self.starts, self.columns, x, self.values)


def sum_entries(
    starts: np.ndarray, columns: np.ndarray, x: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return the product (rows, width) of a sparse matrix in CSR format with x, in x's type.

    Args:
        starts: (rows + 1,): row i has the entries starts[i] : starts[i + 1].
        columns: (entries,): column of each entry, which is the row of x that it multiplies.
        x: (columns, width).
        weights: (entries,) values of the entries, in x's type; by default 1.
    """
    sums = np.zeros((len(starts) - 1, x.shape[1]), x.dtype)
    values = np.ones(len(columns), x.dtype) if weights is None else weights
    kind = np.result_type(starts, columns)
    index = (np.asarray(part, kind) for part in (starts, columns))
    _load_loops().csr_matvecs(*sums.shape[:1], *x.shape, *index, values, x.ravel(), sums.ravel())
    return sums


@cache
def _load_loops() -> ModuleType:
    """Return the extension module with scipy's C loops for CSR matrices. It is loaded without
    importing scipy.sparse, which takes a quarter of a second."""
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
    from scipy.sparse import _sparsetools  # fallback: this scipy has the C loops in another file

    return _sparsetools


def select(positions: np.ndarray, size: int) -> SparseRows:
    """Return the sparse matrix (n, size) with matrix @ x == x[positions].

    Args:
        positions: (n,) row numbers of x.
        size: number of rows of x.
    """
    count = len(positions)
    return SparseRows(
        np.arange(count + 1, dtype=np.int32),
        positions.astype(np.int32),
        np.ones(count, np.float32),
        size,
    )
