"""Return a row for each configuration of a layout graph, for LightGBM.

Each distinct (node, layout) pair is described once. A configuration's row sums the descriptions of
its pairs, weighted by each node's share of the graph's work, so that rows of small and large graphs
compare. Other columns describe the whole configuration: copies between neighbours that disagree,
and how common its layouts are among the candidates. A row therefore depends on the list of
candidates (solution.features.layout.frequency).
"""

import numpy as np
from scipy.sparse import csr_array

from solution.domain.codebook import Codebook
from solution.domain.graph import Graph
from solution.domain.vocabulary import CONFIGURABLE_OPCODES, LAYOUT_TENSORS, OPCODE_IDS
from solution.features.column import Feature, as_rows
from solution.features.layout import copies, frequency
from solution.features.layout import tensors as layouts
from solution.features.work import configurable_shares, num_bytes, num_operations, tensor_shares

_TENSOR = {
    "given": ("share", "the configuration orders it"),
    "changed": ("share", "its order is not the program's"),
    "minor_changed": ("share", "another dimension becomes contiguous"),
    "minor_ratio": ("log ratio", "the contiguous size over the program's"),
    "violation": ("share", "its largest dimension is not contiguous"),
    "waste": ("log ratio", "padding to the (8, 128) register tile"),
    "displacement": ("share", "how far out the once contiguous dimension moved"),
}
# Features that say nothing new once they are averaged over nodes are left out.
SUMMED = tuple(f"{tensor}_{name}" for tensor in LAYOUT_TENSORS for name in _TENSOR)
_WEIGHTS = {
    "count": "each node alike",
    "bytes": "by bytes",
    **{name: f"{name} nodes by operations" for name in CONFIGURABLE_OPCODES},
}
WEIGHTED = tuple(
    Feature(f"{weight}_{tensor}_{name}", unit, f"{tensor}, {how}: {reason}")
    for weight, how in _WEIGHTS.items()
    for tensor in LAYOUT_TENSORS
    for name, (unit, reason) in _TENSOR.items()
)
COUNTS = (
    *(Feature(f"ordered_{name}", "share", f"{name} nodes that get any layout")
      for name in CONFIGURABLE_OPCODES),
    *(Feature(f"reordered_{name}", "share", f"{name} nodes whose layout is not the program's")
      for name in CONFIGURABLE_OPCODES),
    Feature("moved_bytes", "log ratio", "padded bytes of what configurable nodes write and read, "
            "over the real ones"),
)  # fmt: skip
CONTEXT = (
    *(Feature(f"graph_{name}_share", "share", f"{name} nodes among the configurable ones")
      for name in CONFIGURABLE_OPCODES),
    Feature("graph_nodes", "log count", "nodes of the prepared graph"),
    Feature("graph_configurable", "log1p count", "nodes that a configuration orders"),
    Feature("graph_operations", "log operations", "work in all"),
    Feature("graph_bytes", "log bytes", "output tensors in all"),
)  # fmt: skip
FEATURES = (*WEIGHTED, *COUNTS, *copies.FEATURES, *frequency.FEATURES, *CONTEXT)
BLOCK_ENTRIES = 1 << 22  # (configuration, node) entries summed in one block


def layout_rows(graph: Graph, configs: np.ndarray | None = None) -> np.ndarray:
    """Return the columns FEATURES, one row for each configuration, or for each of `configs` (k,).

    Columns OPCODE_FEATURE are weighted by the share of operations among the configurable nodes,
    bytes_FEATURE by the share of bytes, count_FEATURE by 1 / configurable nodes. The graph_ columns
    describe the graph and are the same in every row.

    Returns:
        (configs, columns) float32.
    """
    pairs = graph.layouts
    weighted = _weigh_pairs(graph, pairs)
    blocks = [
        _sum_over_nodes(graph, weighted),
        copies.count_copies(graph),
        frequency.measure_frequency(pairs, graph.listed),
    ]
    distinct = pairs.rows if configs is None else pairs.rows[configs]
    context = _context(graph)
    features = [f.name for f in (*WEIGHTED, *COUNTS, *copies.FEATURES, *frequency.FEATURES)]
    summed = np.concatenate(blocks, axis=1)
    moved = features.index("moved_bytes")
    summed[:, moved] = np.log1p(summed[:, moved])  # it held the padding alone
    columns = dict(zip(features, summed.astype(np.float32)[distinct].T, strict=True))
    return as_rows({**columns, **context}, FEATURES, len(distinct))


def _weigh_pairs(graph: Graph, pairs: Codebook) -> np.ndarray:
    """Return the contribution of each pair (a row) to the columns WEIGHTED and COUNTS."""
    described = layouts.describe_layouts(graph, pairs)
    summed = described[:, [layouts.FEATURES.index(feature) for feature in SUMMED]]
    weights = [weight[pairs.node, None] * summed for weight in _weigh_nodes(graph).values()]
    return np.concatenate([*weights, _count_pairs(graph, pairs, described)], axis=1)


def _count_pairs(graph: Graph, pairs: Codebook, described: np.ndarray) -> np.ndarray:
    """Return columns COUNTS of each pair; moved_bytes is only the padding, over all real bytes."""
    opcode = graph.node_opcodes[graph.configurable][pairs.node]
    columns = []
    for mark in ("given", "changed"):
        marked = _of_tensors(described, mark).max(axis=1)
        for name in CONFIGURABLE_OPCODES:
            of_opcode = opcode == OPCODE_IDS[name]
            nodes = max(1, int((graph.node_opcodes[graph.configurable] == OPCODE_IDS[name]).sum()))
            columns.append(marked * of_opcode / nodes)
    padding = np.expm1(_of_tensors(described, "waste"))
    columns.append((padding * tensor_shares(graph)[pairs.node]).sum(axis=1))
    return np.column_stack(columns)


def _of_tensors(described: np.ndarray, name: str) -> np.ndarray:
    """Return the feature of that name of each tensor: (pairs, 3)."""
    return described[:, [layouts.FEATURES.index(f"{tensor}_{name}") for tensor in LAYOUT_TENSORS]]


def _weigh_nodes(graph: Graph) -> dict[str, np.ndarray]:
    """Return each configurable node's weight by several measures."""
    operations, size = configurable_shares(graph).T
    opcode = graph.node_opcodes[graph.configurable]
    by_opcode = {
        name: np.where(opcode == OPCODE_IDS[name], operations, 0) for name in CONFIGURABLE_OPCODES
    }
    count = np.full(len(size), 1 / max(1, len(size)))
    return {"count": count, "bytes": size, **by_opcode}


def _sum_over_nodes(graph: Graph, weighted: np.ndarray) -> np.ndarray:
    """Sum the rows of `weighted` (pairs, columns) that each distinct configuration uses.

    A product with a sparse 0/1 matrix always adds in the order of the nodes. It handles one opcode
    at a time, because most columns are 0 for all other opcodes.

    Returns:
        (distinct configs, columns)
    """
    pairs, opcodes = graph.layouts, graph.node_opcodes[graph.configurable]
    sums = np.zeros((len(pairs.codes), weighted.shape[1]))
    for opcode in np.unique(opcodes):
        nodes = np.flatnonzero(opcodes == opcode)
        columns = np.flatnonzero(weighted[opcodes[pairs.node] == opcode].any(axis=0))
        of_opcode = np.ascontiguousarray(weighted[:, columns])
        step = max(1, BLOCK_ENTRIES // len(nodes))
        for first in range(0, len(sums), step):
            block = slice(first, first + step)
            index = pairs.codes[block][:, nodes] + pairs.starts[nodes]  # of pairs
            starts = np.arange(0, index.size + 1, len(nodes))
            entries = (np.ones(index.size), index.ravel(), starts)
            uses = csr_array(entries, shape=(len(index), len(weighted)))
            sums[block, columns] += uses @ of_opcode
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
