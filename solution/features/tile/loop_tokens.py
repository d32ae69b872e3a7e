"""Return the loops of a kernel as tokens for a net, one for each dimension that a tile may cut."""

import numpy as np

from solution.domain.graph import Graph
from solution.domain.vocabulary import MAX_RANK
from solution.features.tile.tiling import NUM_LOOPS, REDUCTION, WINDOW, find_tiling

TOKEN_FEATURES = 9


def dimension_tokens(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Describe how every configuration tiles every loop.

    Returns:
        tokens (configs, NUM_LOOPS, TOKEN_FEATURES) float32 of about unit size: logarithms of the
        loop's length, of its tile, of the number of tiles, of the surplus of an uneven last tile,
        of the tail of a vector of 16; distance from the contiguous dimension; whether the loop
        belongs to the output, a sum, or a convolution's kernel. active (NUM_LOOPS,) float32: 1
        where the loop has several iterations.
    """
    tiling = find_tiling(graph)
    tile, count = tiling.tiles, tiling.counts
    length = np.broadcast_to(tiling.extents, tile.shape)
    loops = np.arange(NUM_LOOPS)
    kinds = [loops < MAX_RANK, loops == REDUCTION, loops >= WINDOW]
    distance = np.where(loops < MAX_RANK, tiling.rank - 1 - loops, 0) / MAX_RANK
    columns = [
        np.log(length) / 4,
        np.log(tile) / 4,
        np.log(count) / 4,
        np.log(count * tile / length),
        np.log((tile // 16 + tile % 16) * 16 / tile) / 2,
        *(np.broadcast_to(value, tile.shape) for value in (distance, *kinds)),
    ]
    active = (tiling.extents > 1).astype(np.float32)
    return np.stack(columns, axis=2).astype(np.float32), active
