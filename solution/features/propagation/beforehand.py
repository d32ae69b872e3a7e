"""Find the layouts that instructions have before a configuration requests any."""

from collections.abc import Sequence

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS
from solution.features.padding import tensor_ranks
from solution.features.propagation.backend import Backend
from solution.features.propagation.canonical import find_turned
from solution.features.propagation.inlining import Inlined

# the same values as in solution.features.propagation.orders, which imports numba
UNSET, BITS = -1, 3


def fix_layouts(
    graph: Graph,
    node: np.ndarray,
    opcodes: np.ndarray,
    ranks: np.ndarray,
    count: int,
    backend: Backend,
) -> np.ndarray:
    """Return the fixed layouts of parameters and, on some backends, of dots and convolutions."""
    fixed = np.full(len(node), UNSET, np.int64)
    opcodes = opcodes[:count]
    layouts = _read_layouts(graph)[node[:count]]
    wanted = opcodes == OPCODE_IDS["parameter"]
    fixed[:count][wanted] = layouts[wanted]
    if backend.row_major_products:
        for place in np.flatnonzero(opcodes == OPCODE_IDS["dot"]):
            fixed[place] = _pack(range(int(ranks[place]))[::-1])
        for place in np.flatnonzero(opcodes == OPCODE_IDS["convolution"]):
            fixed[place] = _find_canonical(graph, int(node[place]))
    return fixed


def turn_dots(
    inlined: Inlined, described: dict[str, np.ndarray], opcodes: np.ndarray, backend: Backend
) -> np.ndarray:
    """Return `Instructions.turned`: the layout of each dot that a transpose reads."""
    turned = np.full(len(opcodes), UNSET, np.int64)
    if backend.canonical_operands:
        found = find_turned(inlined, opcodes, described["rank"], described["dimensions"])
        for own, order in found.items():
            turned[own] = _pack(order[::-1])
    return turned


def _find_canonical(graph: Graph, node: int) -> int:
    """Return a convolution's output layout with features innermost and the batch outermost."""
    row = graph.node_features[node].astype(np.int64)
    rank = int(min(tensor_ranks(graph)[node], MAX_RANK))
    batch, features = (
        row[vocabulary.CONVOLUTION_OUTPUT_BATCH], row[vocabulary.CONVOLUTION_OUTPUT_FEATURE]
    )  # fmt: skip
    spatial = [axis for axis in range(rank) if axis not in (batch, features)]
    order = [features, *reversed(spatial), batch]
    if sorted(order) != list(range(rank)):
        order = list(range(rank))[::-1]
    return _pack(order)


def _read_layouts(graph: Graph) -> np.ndarray:
    """Return each node's layout (nodes,) in the module; row-major where the module has none."""
    ranks = np.minimum(tensor_ranks(graph), MAX_RANK).astype(np.int64)
    given = graph.node_features[:, vocabulary.NODE_LAYOUT].astype(np.int64)
    slots = np.arange(MAX_RANK)
    used = slots < ranks[:, None]
    row_major = np.where(used, ranks[:, None] - 1 - slots, slots)
    filled = np.where(used, given, slots)
    sound = (np.sort(filled, axis=1) == slots).all(axis=1)
    return pack_rows(np.where(used, np.where(sound[:, None], given, row_major), 0))


def _pack(dimensions: Sequence[int]) -> int:
    """Pack one layout, minor to major, into an integer."""
    return int(pack_rows(np.array([*dimensions, *[0] * (MAX_RANK - len(dimensions))])))


def pack_rows(dimensions: np.ndarray) -> np.ndarray:
    """Pack layouts (..., 6), minor to major and 0 past the rank, into integers."""
    return np.asarray((dimensions.astype(np.int64) << (BITS * np.arange(MAX_RANK))).sum(axis=-1))
