"""Describe how the loops of a tile run: trip counts, starts, vector tails, passes.

A kernel is a loop nest (solution.features.tile.tiling). A compiler vectorises it if the innermost
loop runs along contiguous memory. A short inner loop is started often; a length that is no multiple
of the vector's leaves a tail; every operation of a fused kernel passes over the tile once.

For nets, dimension_tokens encodes each loop that a tile may divide as a vector, called a token.
"""

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS
from solution.features.column import Columns, Feature, numbered
from solution.features.operations import num_elements
from solution.features.tile.access import find_walks
from solution.features.tile.cache import FIRST_LEVEL, SECOND_LEVEL, Nest, make_nest
from solution.features.tile.tiling import NUM_LOOPS, REDUCTION, WINDOW, Tiling, find_tiling

VECTORS = (8, 16)  # float32 numbers in vectors of 256 and 512 bits
OUTER = 3  # number of loops around the innermost one that the table describes
SPATIAL = 3  # spatial dimensions of a convolution's kernel
# opcodes that need no pass over the tile's elements
FREE = ("parameter", "constant", "broadcast", "tuple", "fusion", "iota", "bitcast")

FEATURES = (
    Feature(
        "inner_trip",
        "log iterations",
        "iterations of the innermost loop; a short one is dominated by its start",
    ),
    Feature("inner_vector_8", "log share", "iterations including tails, for vectors of 8 numbers"),
    Feature(
        "inner_vector_16", "log share", "iterations including tails, for vectors of 16 numbers"
    ),
    Feature("inner_starts", "log per iteration", "how often the innermost loop is started"),
    Feature("second_starts", "log per iteration", "how often the loop around it is started"),
    Feature("third_starts", "log per iteration", "how often the loop around that is started"),
    Feature(
        "inner_even", "log ratio", "iterations of all tiles over the loop's: an uneven last tile"
    ),
    Feature("inner_is_unit", "0 or 1", "the innermost loop is contiguous, so it is vectorised"),
    Feature("sum_trip", "log iterations", "terms added before a partial sum is stored"),
    Feature(
        "sum_vector_16",
        "log share",
        "iterations of the sum's loop including tails, for vectors of 16",
    ),
    Feature("sum_even", "log ratio", "an uneven last block of the sum"),
    Feature("sum_restarts", "log count", "how often a partial sum is read and written again"),
    *numbered("outer_trip", "log iterations", "the k-th loop outside the innermost one", OUTER),
    *numbered("outer_count", "log count", "tiles along that loop", OUTER),
    Feature("window_trip", "log iterations", "elements of a convolution's weights in a tile"),
    Feature("window_count", "log count", "tiles of a convolution's weights"),
    *numbered(
        "window_trip", "log iterations", "the tile along a dimension of the weights", SPATIAL
    ),
    Feature("tile_iterations", "log iterations", "iterations of a tile"),
    Feature("tile_starts", "log per iteration", "starts of tiles for each iteration"),
    Feature("passes", "log1p count", "operations that each pass over every tile"),
    Feature("pass_starts", "log1p per iteration", "inner loops that these passes start"),
    Feature("pass_over_first_level", "log ratio", "data of a pass over the size of the cache"),
    Feature("pass_over_second_level", "log ratio", "the same for the larger cache"),
)
TOKEN_FEATURES = 9


def innermost_loop(graph: Graph) -> int:
    """Return the loop that a C compiler puts innermost: the loop of the sum if all operands are
    contiguous along it (A times B transposed), else the loop along the output's minor dimension."""
    summed = [walk for walk in find_walks(graph)[1:] if walk.follows()[REDUCTION]]
    if summed and all(walk.axes[-1].loop == REDUCTION for walk in summed):
        return REDUCTION
    return find_tiling(graph).rank - 1


def find_nest(graph: Graph) -> Nest:
    """Return the loop nest of the kernel; its levels are numbered from the innermost loop."""
    return make_nest(find_tiling(graph), innermost_loop(graph))


def describe_loops(graph: Graph, nest: Nest) -> Columns:
    """Return the columns FEATURES (configs,) by name, for a graph with the loop nest `nest`."""
    tiling, inner = find_tiling(graph), innermost_loop(graph)
    trips, counts = tiling.tiles, tiling.counts
    iterations = tiling.extents.prod()
    return {
        "inner_trip": np.log(trips[:, inner]),
        **{f"inner_vector_{size}": np.log(count_tails(tiling, inner, size)) for size in VECTORS},
        **_starts(nest, iterations),
        "inner_even": _even(tiling, inner),
        "inner_is_unit": float(is_unit(graph)),
        "sum_trip": np.log(trips[:, REDUCTION]),
        "sum_vector_16": np.log(count_tails(tiling, REDUCTION, 16)),
        "sum_even": _even(tiling, REDUCTION),
        "sum_restarts": np.log(counts[:, REDUCTION:].prod(axis=1)),
        **_outer_loops(tiling),
        "window_trip": np.log(trips[:, WINDOW:].prod(axis=1)),
        "window_count": np.log(counts[:, WINDOW:].prod(axis=1)),
        **{f"window_trip_{k}": np.log(trips[:, WINDOW + k]) for k in range(SPATIAL)},
        "tile_iterations": np.log(trips.prod(axis=1)),
        "tile_starts": np.log(counts.prod(axis=1) / iterations),
        **_passes(graph, tiling),
    }


def is_unit(graph: Graph) -> bool:
    """Return True if the innermost loop is contiguous in every tensor along which it moves."""
    inner = innermost_loop(graph)
    return all(w.inner_stride(inner) in (0.0, w.element_bytes) for w in find_walks(graph))


def count_tails(tiling: Tiling, loop: int, vector: int) -> np.ndarray:
    """Return a loop's number of vector and tail iterations (configs,), relative to a loop without
    tails: sum over tiles of (length // vector + length % vector), times vector / extent.
    """
    extent, trip = tiling.extents[loop], tiling.tiles[:, loop]
    full = np.floor(extent / trip)
    last = extent - full * trip
    steps = full * (trip // vector + trip % vector) + last // vector + last % vector
    return np.asarray(steps * vector / extent)


def _even(tiling: Tiling, loop: int) -> np.ndarray:
    return np.log(tiling.counts[:, loop] * tiling.tiles[:, loop] / tiling.extents[loop])


def _starts(nest: Nest, iterations: float) -> dict[str, np.ndarray]:
    never, executions = np.zeros(nest.configs), nest.executions
    names = ("inner_starts", "second_starts", "third_starts")
    return {
        name: np.log(executions[level] / iterations) if level < len(executions) else never
        for level, name in enumerate(names)
    }


def _outer_loops(tiling: Tiling) -> dict[str, np.ndarray]:
    columns: dict[str, np.ndarray] = {}
    for distance in range(OUTER):
        loop = tiling.rank - 2 - distance
        trip, count = np.ones(len(tiling.tiles)), np.ones(len(tiling.tiles))
        if loop >= 0:
            trip, count = tiling.tiles[:, loop], tiling.counts[:, loop]
        columns |= {
            f"outer_trip_{distance}": np.log(trip),
            f"outer_count_{distance}": np.log(count),
        }
    return columns


def count_passes(graph: Graph) -> int:
    """Count the computed nodes that have at least half as many elements as the tiled tensor."""
    cut = find_tiling(graph).extents[:MAX_RANK].prod()
    computed = ~np.isin(graph.node_opcodes, [OPCODE_IDS[name] for name in FREE])
    return int((computed & (num_elements(graph) >= cut / 2)).sum())


def _passes(graph: Graph, tiling: Tiling) -> dict[str, np.ndarray | float]:
    passes, inner = count_passes(graph), tiling.rank - 1
    share = tiling.extents[:MAX_RANK].prod() / tiling.extents.prod()
    width = graph.node_features[tiling.node, vocabulary.ELEMENT_TYPE] @ vocabulary.ELEMENT_BYTES
    size = tiling.tiles[:, :MAX_RANK].prod(axis=1) * max(float(width), 1.0)
    starts = passes * share * tiling.counts[:, inner] / tiling.extents[inner]
    return {
        "passes": float(np.log1p(passes)),
        "pass_starts": np.log1p(starts),
        "pass_over_first_level": np.log(np.maximum(1, 2 * size / FIRST_LEVEL)),
        "pass_over_second_level": np.log(np.maximum(1, 2 * size / SECOND_LEVEL)),
    }


def dimension_tokens(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens (configs, NUM_LOOPS, TOKEN_FEATURES) float32 of about unit size, which tell how
    configurations tile loops, and a mask (NUM_LOOPS,) of loops with several iterations.

    A token has logarithms (loop's length, tile's length, number of tiles, surplus of the last tile,
    tail of a vector of 16), the distance from the contiguous dimension, and three flags: loop along
    the output, of a sum, along a convolution's weights.
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
