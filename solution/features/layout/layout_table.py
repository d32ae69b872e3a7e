"""Build the feature table of a layout graph for LightGBM: a row for each configuration.

Each distinct (node, layout) pair is described once. A configuration's row sums the descriptions of
its pairs, weighted by each node's share of the graph's work, so that rows of small and large graphs
can be compared. Other columns describe the whole configuration: copies between nodes whose layouts
disagree, and how common its layouts are among the candidates. A row therefore depends on all the
candidates (solution.features.layout.frequency).
"""

import numpy as np
from scipy.sparse import csr_array

from solution.domain.codebook import Codebook
from solution.domain.graph import Graph
from solution.domain.vocabulary import CONFIGURABLE_OPCODES, LAYOUT_TENSORS, OPCODE_IDS
from solution.features.column import Feature, as_rows
from solution.features.layout import frequency
from solution.features.layout import tensors as layouts
from solution.features.operations import (
    configurable_shares,
    num_bytes,
    num_operations,
    tensor_shares,
)

_TENSOR = {
    "given": ("share", "the configuration orders it"),
    "changed": ("share", "its order is not the program's"),
    "minor_changed": ("share", "another dimension becomes contiguous"),
    "minor_ratio": ("log ratio", "the contiguous size over the program's"),
    "violation": ("share", "its largest dimension is not contiguous"),
    "waste": ("log ratio", "padding to the (8, 128) register tile"),
    "displacement": ("share", "how far out the program's contiguous dimension moved"),
}
# Features of (node, layout) pairs whose weighted sum over nodes is a column. The others of
# tensors.TENSOR_FEATURES are left out, because their sums say nothing new: for example, the sum of
# `size` is equal in all configurations of a graph.
SUMMED = tuple(f"{tensor}_{name}" for tensor in LAYOUT_TENSORS for name in _TENSOR)
_WEIGHTS = {
    "count": "nodes equally",
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
    Feature("moved_bytes", "log ratio", "padded over real bytes of the tensors that "
            "configurable nodes write and read"),
)  # fmt: skip
CONTEXT = (
    *(Feature(f"graph_{name}_share", "share", f"{name} nodes among the configurable ones")
      for name in CONFIGURABLE_OPCODES),
    Feature("graph_nodes", "log count", "nodes of the prepared graph"),
    Feature("graph_configurable", "log1p count", "nodes that a configuration orders"),
    Feature("graph_operations", "log operations", "work of all nodes"),
    Feature("graph_bytes", "log bytes", "all output tensors"),
)  # fmt: skip
COPIES = (
    Feature("copies_constrained", "share", "tensors with several constraints that get any order"),
    Feature("copies_minor", "share", "tensors whose orders have different contiguous dimensions"),
    Feature("copies_order", "share", "tensors whose orders differ in the two minor dimensions"),
    Feature("copies_count", "log1p count", "copies that the configuration asks for"),
    Feature("copies_constrained_bytes", "share", "copies_constrained by bytes"),
    Feature("copies_minor_bytes", "share", "copies_minor by bytes: what the copies move"),
    Feature("copies_order_bytes", "share", "copies_order by bytes"),
    Feature("copies_bytes", "log1p bytes", "bytes that the copies move"),
)
FEATURES = (*WEIGHTED, *COUNTS, *COPIES, *frequency.FEATURES, *CONTEXT)
# maximum number of (configuration, node or tensor) entries in memory at once
BLOCK_ENTRIES = 1 << 22


def layout_rows(graph: Graph, configs: np.ndarray | None = None) -> np.ndarray:
    """Return the columns FEATURES (configs, columns) float32 of all configurations or of `configs`
    (k,). Columns named after an opcode are weighted by each node's share of operations, bytes_
    columns by its share of bytes, count_ columns by 1 / number of configurable nodes. graph_
    columns are the same in every row."""
    pairs = graph.layouts
    weighted = _weigh_pairs(graph, pairs)
    blocks = [
        _sum_over_nodes(graph, weighted),
        count_copies(graph),
        frequency.measure_frequency(pairs, graph.listed),
    ]
    distinct = pairs.rows if configs is None else pairs.rows[configs]
    context = _context(graph)
    features = [f.name for f in (*WEIGHTED, *COUNTS, *COPIES, *frequency.FEATURES)]
    summed = np.concatenate(blocks, axis=1)
    moved = features.index("moved_bytes")
    # `summed` holds bytes of padding / real bytes; the column is log(padded bytes / real bytes)
    summed[:, moved] = np.log1p(summed[:, moved])
    columns = dict(zip(features, summed.astype(np.float32)[distinct].T, strict=True))
    return as_rows({**columns, **context}, FEATURES, len(distinct))


def _weigh_pairs(graph: Graph, pairs: Codebook) -> np.ndarray:
    """Return the contribution (pairs, columns) of each (node, layout) pair to the columns WEIGHTED
    and COUNTS."""
    described = layouts.describe_layouts(graph, pairs)
    summed = described[:, [layouts.FEATURES.index(feature) for feature in SUMMED]]
    weights = [weight[pairs.node, None] * summed for weight in _weigh_nodes(graph).values()]
    return np.concatenate([*weights, _count_pairs(graph, pairs, described)], axis=1)


def _count_pairs(graph: Graph, pairs: Codebook, described: np.ndarray) -> np.ndarray:
    """Return the contribution (pairs, columns) of each pair to COUNTS. To moved_bytes, a pair adds
    the bytes of padding of its node's tensors / the real bytes of all configurable nodes' tensors.
    """
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
    """Return the feature `name` of the output, input and kernel: (pairs, 3)."""
    return described[:, [layouts.FEATURES.index(f"{tensor}_{name}") for tensor in LAYOUT_TENSORS]]


def _weigh_nodes(graph: Graph) -> dict[str, np.ndarray]:
    """Return {name in _WEIGHTS: the weights (configurable,) of the configurable nodes}."""
    operations, size = configurable_shares(graph).T
    opcode = graph.node_opcodes[graph.configurable]
    by_opcode = {
        name: np.where(opcode == OPCODE_IDS[name], operations, 0) for name in CONFIGURABLE_OPCODES
    }
    count = np.full(len(size), 1 / max(1, len(size)))
    return {"count": count, "bytes": size, **by_opcode}


def _sum_over_nodes(graph: Graph, weighted: np.ndarray) -> np.ndarray:
    """Return the sums (distinct configs, columns) of the rows of `weighted` (pairs, columns) that
    each configuration uses: a multiplication by a sparse 0/1 matrix. It is done opcode by opcode,
    because most columns are 0 for an opcode, and adds up nodes in their order."""
    pairs, opcodes = graph.layouts, graph.node_opcodes[graph.configurable]
    sums = np.zeros((len(pairs.codes), weighted.shape[1]))
    for opcode in np.unique(opcodes):
        nodes = np.flatnonzero(opcodes == opcode)
        columns = np.flatnonzero(weighted[opcodes[pairs.node] == opcode].any(axis=0))
        of_opcode = np.ascontiguousarray(weighted[:, columns])
        step = max(1, BLOCK_ENTRIES // len(nodes))
        for first in range(0, len(sums), step):
            block = slice(first, first + step)
            # (configs, nodes): the pair that each node has in each configuration
            index = pairs.codes[block][:, nodes] + pairs.starts[nodes]
            starts = np.arange(0, index.size + 1, len(nodes))
            entries = (np.ones(index.size), index.ravel(), starts)
            uses = csr_array(entries, shape=(len(index), len(weighted)))
            sums[block, columns] += uses @ of_opcode
    return sums


def count_copies(graph: Graph) -> np.ndarray:
    """Return the columns COPIES (distinct configs, columns) float64, about tensors for which the
    producer and the consumers request different layouts."""
    constraints, codes = layouts.find_constraints(graph), graph.layouts.codes
    if len(constraints.nodes) == 0:
        return np.zeros((len(codes), len(COPIES)))
    size = num_bytes(graph)[constraints.nodes]
    shares = np.stack([np.full(len(size), 1 / len(size)), size / size.sum()], axis=1)
    step = max(1, BLOCK_ENTRIES // max(len(constraints.configurable), 1))
    blocks = []
    for first in range(0, len(codes), step):
        found = constraints.describe(codes[first : first + step]).astype(np.float32)
        # Sum each feature over tensors, by count and by bytes: (configs, weights, features).
        summed = np.einsum("ctf,tw->cwf", found, shares)
        number = np.log1p(summed[:, 0, 2] * len(size))
        moved = np.log1p(summed[:, 1, 2] * size.sum())
        blocks.append(np.column_stack([summed[:, 0], number, summed[:, 1], moved]))
    return np.concatenate(blocks)


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
