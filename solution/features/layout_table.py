"""A row for each configuration of a layout graph, for LightGBM.

Every distinct (node, layout) pair is described once; a configuration's row sums the descriptions of
its pairs, weighted by each node's share of the graph's work, so that rows of a small and of a large
graph mean the same.
"""

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from solution.codebook import Codebook
from solution.features import layouts
from solution.features.work import configurable_shares, num_bytes, num_operations
from solution.graph import Graph
from solution.vocabulary import CONFIGURABLE_OPCODES, LAYOUT_TENSORS, OPCODE_IDS

# Features of a tensor that say nothing new once they are averaged over nodes are left out.
SUMMED = tuple(
    f"{tensor}_{name}"
    for tensor in LAYOUT_TENSORS
    for name in ("given", "changed", "minor_changed", "minor_ratio", "waste", "displacement")
)
BLOCK_ENTRIES = 1 << 22  # (configuration, node) entries that are summed at once


def layout_table(graph: Graph) -> pl.DataFrame:
    """Float32 columns, a row for each configuration in order.

    Columns OPCODE_FEATURE are weighted by the share of operations among the configurable nodes,
    bytes_FEATURE by the share of bytes, count_FEATURE by 1 / configurable nodes. The rest describes
    the graph and is the same in every row.
    """
    pairs = graph.layouts
    weighted = _weigh_pairs(graph, pairs)
    sums = _sum_over_nodes(pairs, weighted.to_numpy())[pairs.rows]
    rows = pl.DataFrame(sums, schema=weighted.columns)
    context = [pl.lit(value).alias(name) for name, value in _context(graph).items()]
    return rows.with_columns(*context).cast(pl.Float32())


def _weigh_pairs(graph: Graph, pairs: Codebook) -> pl.DataFrame:
    """What each pair (a row) contributes to every column."""
    described = pl.DataFrame(layouts.describe_layouts(graph, pairs), schema=list(layouts.FEATURES))
    weights = pl.DataFrame(_weigh_nodes(graph))[pairs.node]
    return described.select(
        (pl.col(feature) * weights[name]).alias(f"{name}_{feature}")
        for name in weights.columns
        for feature in SUMMED
    )


def _weigh_nodes(graph: Graph) -> dict[str, np.ndarray]:
    """Each configurable node's share, by several measures of how much it matters."""
    operations, size = configurable_shares(graph).T
    opcode = graph.node_opcodes[graph.configurable]
    by_opcode = {
        name: np.where(opcode == OPCODE_IDS[name], operations, 0) for name in CONFIGURABLE_OPCODES
    }
    count = np.full(len(size), 1 / max(1, len(size)))
    return {"count": count, "bytes": size, **by_opcode}


def _sum_over_nodes(pairs: Codebook, weighted: np.ndarray) -> np.ndarray:
    """Sum the rows of `weighted` (pairs, columns) that each distinct configuration uses.

    A product with a sparse 0/1 matrix adds in the order of the nodes, every time.

    Returns:
        (distinct configs, columns)
    """
    configs, nodes = pairs.codes.shape
    if nodes == 0:
        return np.zeros((configs, weighted.shape[1]))
    step = max(1, BLOCK_ENTRIES // nodes)
    sums = np.empty((configs, weighted.shape[1]))
    for first in range(0, configs, step):
        index = pairs.pairs(slice(first, first + step))
        starts = np.arange(0, index.size + 1, nodes)
        uses = csr_array(
            (np.ones(index.size), index.ravel(), starts), shape=(len(index), len(weighted))
        )
        sums[first : first + step] = uses @ weighted
    return sums


def _context(graph: Graph) -> dict[str, float]:
    opcodes = graph.node_opcodes[graph.configurable]
    operations = num_operations(graph)
    shares = {
        f"graph_{name}_share": float((opcodes == OPCODE_IDS[name]).mean()) if len(opcodes) else 0.0
        for name in CONFIGURABLE_OPCODES
    }
    return {
        **shares,
        "graph_nodes": float(np.log(graph.num_nodes)),
        "graph_configurable": float(np.log1p(len(graph.configurable))),
        "graph_operations": float(np.log(operations.sum())),
        "graph_bytes": float(np.log(num_bytes(graph).sum())),
    }
