"""Index ragged arrays: rows of different lengths, stored one after the other."""

from collections.abc import Sequence

import numpy as np


def starts_of(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the start of each row (rows + 1,) with counts[i] entries, and the end of the last."""
    return np.concatenate([[0], np.cumsum(counts)])


def offsets(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the start of each part (parts,) when the parts are concatenated."""
    return starts_of(sizes)[:-1].astype(np.int64)


def places_in(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row index and the index within the row of every entry of a ragged array.

    Row i has counts[i] entries; both results have the shape (entries,).
    """
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) - np.repeat(offsets(counts), counts)
