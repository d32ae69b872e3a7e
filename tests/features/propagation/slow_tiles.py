"""Where the elements of a tensor lie in the tiles of a TPU's memory."""

import math

import numpy as np

from tests.features.propagation.slow import Layout


def lie_alike(
    shape: tuple[int, ...], layout: Layout, new: tuple[int, ...], new_layout: Layout
) -> bool:
    """Whether each element has the same address in both layouts, and the memory the same size."""
    before, size = tile_addresses(shape, layout)
    after, new_size = tile_addresses(new, new_layout)
    return size == new_size and bool((before == after).all())


def tile_addresses(shape: tuple[int, ...], layout: Layout) -> tuple[np.ndarray, int]:
    """Where in memory each element lies, in the order of its indices; and the size of the memory.

    The minor dimensions are padded to tiles of 8 x 128.
    With fewer than eight rows, a tile has as many as the next power of two, at least 2.
    """
    minor, second, *others = layout
    rows = min(8, max(2, 2 ** math.ceil(math.log2(shape[second]))))
    lane_tiles, row_tiles = math.ceil(shape[minor] / 128), math.ceil(shape[second] / rows)
    index = np.indices(shape).reshape(len(shape), -1)
    outer = np.zeros(index.shape[1], np.int64)
    for axis in others[::-1]:
        outer = outer * shape[axis] + index[axis]
    tile = (outer * row_tiles + index[second] // rows) * lane_tiles + index[minor] // 128
    tiles = math.prod(shape[axis] for axis in others) * row_tiles * lane_tiles
    address = (tile * rows + index[second] % rows) * 128 + index[minor] % 128
    return address, tiles * rows * 128
