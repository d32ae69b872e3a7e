"""Compute the padded bytes of tensors on a TPU, and the used share of its matrix unit.

A register of a TPU holds 8 sublanes x 128 lanes of 32 bits. In memory, a tensor's most minor
dimension fills lanes, so its size is rounded up to a multiple of 128. The next one fills sublanes:
it is rounded up to a multiple of 8 or, below 8, to a power of two. A layout therefore decides how
many bytes a tensor has, and how many bytes each kernel and copy moves.

A tensor of one dimension fills rows of 128 lanes; the number of rows is rounded up like sublanes.
"""

import numpy as np

from solution.domain.vocabulary import LANES, SUBLANES
from solution.features.propagation.canonical import make_row_major
from solution.features.propagation.states import list_dimensions
from solution.features.propagation.tiles import find_fewest_rows

# number of rows and columns of the matrix unit of TPU v2 to v5p
MATRIX = 128


def count_padded_bytes(
    layouts: np.ndarray, sizes: np.ndarray, rank: np.ndarray, element_bytes: np.ndarray
) -> np.ndarray:
    """Return the bytes (states,) float64 of tensors with padding; scalars are not padded.

    Args:
        layouts: (states,) packed into integers; UNSET counts as row-major.
        sizes: (states, 6) sizes of the tensors' dimensions, 1 past the rank.
        rank: (states,) number of the tensors' dimensions.
        element_bytes: (states,) bytes of one element.
    """
    minor, second, others = split_sizes(layouts, sizes, rank)
    rows = find_sublanes(np.where(rank > 1, second, minor / LANES), element_bytes)
    lanes = np.where(rank > 1, LANES, LANES * rows)
    padded = _round_up(minor, lanes) * np.where(rank > 1, _round_up(second, rows), 1) * others
    return np.asarray(np.where(rank > 0, padded, 1) * element_bytes)


def split_sizes(
    layouts: np.ndarray, sizes: np.ndarray, rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sizes of the minor dimension and of the next one, and of all other dimensions
    multiplied. All are (states,) float64, and 1 if a tensor has no such dimension. Arguments: as in
    count_padded_bytes."""
    dimensions = list_dimensions(np.where(layouts < 0, make_row_major(rank), layouts), rank)
    ordered = np.take_along_axis(sizes, np.maximum(dimensions, 0), axis=1)
    ordered = np.where(dimensions >= 0, ordered, 1).astype(np.float64)
    return ordered[:, 0], ordered[:, 1], ordered[:, 2:].prod(axis=1)


def find_sublanes(count: np.ndarray, element_bytes: np.ndarray) -> np.ndarray:
    """Return the sublanes of a tile (states,): sizes `count` (states,) are padded to a multiple of
    it. It is 8 or, for smaller sizes, a power of two, at least find_fewest_rows."""
    return np.asarray(np.clip(_round_to_power(count), find_fewest_rows(element_bytes), SUBLANES))


def share_matrix_unit(layouts: np.ndarray, sizes: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Return the share (states,) of the matrix unit's width that a minor dimension fills.
    Arguments: as in count_padded_bytes."""
    minor, _, _ = split_sizes(layouts, sizes, rank)
    return np.asarray(minor / _round_up(minor, MATRIX))


def _round_up(values: np.ndarray, multiple: np.ndarray | int) -> np.ndarray:
    return np.asarray(np.ceil(values / multiple) * multiple)


def _round_to_power(values: np.ndarray) -> np.ndarray:
    """Round up to powers of two; sizes are exact in float64, so log2 of a power of two is exact."""
    return np.asarray(2 ** np.ceil(np.log2(np.maximum(values, 1))))
