"""Rows of different lengths, kept one after the other in one array."""

from collections.abc import Sequence

import numpy as np


def starts_of(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where each row (rows + 1,) of so many entries begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(counts)])


def offsets(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where each of several parts (parts,) begins when they are put one after the other."""
    return starts_of(sizes)[:-1].astype(np.int64)


def places_in(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of all entries of rows of so many (rows,), one row after the other: the row (entries,) of
    each, and its place (entries,) inside that row."""
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) - np.repeat(offsets(counts), counts)
