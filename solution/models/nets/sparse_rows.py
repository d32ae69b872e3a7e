"""CSR arrays without a library; the caller picks numpy or torch to multiply."""

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

    Entries of a row may be in any order, and entries of one column add up. scipy's matrices sort
    and check themselves, which takes longer than the product. Both index arrays have one type; a
    narrow one is read faster.
    """

    starts: np.ndarray  # (rows + 1,) int32 or int64
    columns: np.ndarray  # (entries,), the same type
    values: np.ndarray  # (entries,) float32
    num_columns: int

    def transposed(self) -> "SparseRows":
        """Return the transposed matrix."""
        from scipy.sparse import csr_array  # slow to import, and prediction does not need it

        num_rows = len(self.starts) - 1
        shape = (num_rows, self.num_columns)
        turned = csr_array(csr_array((self.values, self.columns, self.starts), shape=shape).T)
        return SparseRows(turned.indptr, turned.indices, turned.data, num_rows)

    def cut(self, rows: slice) -> "SparseRows":
        """Return a range of rows."""
        return self._replace(starts=self.starts[rows.start : rows.stop + 1])

    def product(self, x: np.ndarray) -> np.ndarray:
        """Return the product with x (columns, width) float32: (rows, width) float32."""
        return sum_entries(self.starts, self.columns, x, self.values)


def sum_entries(
    starts: np.ndarray, columns: np.ndarray, x: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return sums (rows, width) of the rows of x (columns, width) that each row lists, in x's type.

    Args:
        starts: (rows + 1,): row i lists columns[starts[i] : starts[i + 1]].
        weights: (entries,) in x's type; by default 1.
    """
    sums = np.zeros((len(starts) - 1, x.shape[1]), x.dtype)
    values = np.ones(len(columns), x.dtype) if weights is None else weights
    kind = np.result_type(starts, columns)
    index = (np.asarray(part, kind) for part in (starts, columns))
    _load_loops().csr_matvecs(*sums.shape[:1], *x.shape, *index, values, x.ravel(), sums.ravel())
    return sums


@cache
def _load_loops() -> ModuleType:
    """Return scipy's C loops without importing scipy.sparse, which takes a quarter of a second."""
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
    from scipy.sparse import _sparsetools  # if this version of scipy keeps them elsewhere

    return _sparsetools


def select(positions: np.ndarray, size: int) -> SparseRows:
    """Return the matrix (n, size) whose product with x is x[positions]."""
    count = len(positions)
    return SparseRows(
        np.arange(count + 1, dtype=np.int32),
        positions.astype(np.int32),
        np.ones(count, np.float32),
        size,
    )
