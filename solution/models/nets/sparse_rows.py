"""Sparse matrices by rows, as they are counted out: who multiplies with them decides by what."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array


class SparseRows(NamedTuple):
    """A sparse matrix by rows: row i has the entries starts[i] : starts[i + 1].

    Entries may be in any order, and those of one row and column add up: scipy's matrices, which
    sort and check themselves, take longer to make than to multiply.
    """

    starts: np.ndarray  # (rows + 1,) int64
    columns: np.ndarray  # (entries,) int64
    values: np.ndarray  # (entries,) float32
    num_columns: int

    def transposed(self) -> "SparseRows":
        """The matrix turned round."""
        num_rows = len(self.starts) - 1
        shape = (num_rows, self.num_columns)
        turned = csr_array(csr_array((self.values, self.columns, self.starts), shape=shape).T)
        return SparseRows(turned.indptr, turned.indices, turned.data, num_rows)

    def product(self, x: np.ndarray) -> np.ndarray:
        """The product with x (columns, width) float32: (rows, width) float32."""
        shape = (len(self.starts) - 1, self.num_columns)
        matrix = csr_array((self.values, self.columns, self.starts), shape=shape)
        return np.asarray(matrix @ x)


def select(positions: np.ndarray, size: int) -> SparseRows:
    """The matrix (n, size) whose product with x is x[positions]."""
    count = len(positions)
    return SparseRows(np.arange(count + 1), positions, np.ones(count, np.float32), size)
