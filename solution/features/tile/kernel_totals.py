"""Describe a kernel by columns that are the same in every row of its table.

Node features are summed, averaged and maximised by groups of opcodes, so that trees can tell
kernels that move data from kernels that compute.
"""

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS
from solution.features.column import Columns, Feature, numbered
from solution.features.padding import tensor_ranks
from solution.features.tile.tiling import Tiling, find_tiling
from solution.features.work import contracted_size, num_bytes, num_elements, num_operations

# Opcodes that determine a kernel's loops are counted separately, the others together.
COUNTED = (
    "parameter",
    "constant",
    "broadcast",
    "convolution",
    "dot",
    "reduce",
    "reduce-window",
    "reshape",
    "transpose",
    "copy",
    "bitcast",
    "select",
    "exponential",
    "maximum",
    "multiply",
    "add",
)
GROUPS = {
    "data": ("parameter", "constant", "iota"),
    "moving": ("broadcast", "reshape", "transpose", "copy", "bitcast", "slice", "pad", "reverse",
               "concatenate", "gather", "scatter", "dynamic-slice", "dynamic-update-slice"),
    "summing": ("dot", "convolution", "reduce", "reduce-window"),
    "slow": ("exponential", "exponential-minus-one", "log", "log-plus-one", "tanh", "logistic",
             "power", "sqrt", "rsqrt", "cbrt", "divide", "sine", "cosine", "erf", "remainder"),
}  # fmt: skip
OTHER = "other"  # the remaining opcodes are element-wise
WINDOWS = 4

FEATURES = (
    *numbered("output_size", "log1p elements", "the shape in its logical order", MAX_RANK),
    *numbered("window", "elements", "the window of a convolution or a pooling", WINDOWS),
    Feature("output_rank", "dimensions", "how many bounds of the tile mean something"),
    Feature("output_elements", "log elements", "the work that tiles divide"),
    Feature("largest_elements", "log elements", "a tensor that is reduced may be far larger"),
    Feature("parameter_bytes", "log1p bytes", "what has to be read at least"),
    Feature("contracted_size", "log terms", "the sum behind an element of a dot or convolution"),
    Feature("operations", "log operations", "work in all"),
    Feature("intensity_kernel", "log operations per byte", "bound by arithmetic or by memory"),
    Feature("nodes", "log count", "the size of the kernel"),
    Feature("in_registers", "0 or 1", "bounds count TPU register tiles, not elements"),
    *(Feature(f"count_{name}", "count", f"{name} nodes") for name in (*COUNTED, OTHER)),
    *(Feature(f"{group}_{how}", "log1p bytes", f"{how} of the output tensors of {group} nodes")
      for group in (*GROUPS, OTHER) for how in ("sum", "mean", "max")),
)  # fmt: skip


def describe_kernel(graph: Graph) -> Columns:
    """Return the columns FEATURES."""
    tiling = find_tiling(graph)
    return {**_describe(graph, tiling), **_count_opcodes(graph), **_aggregate(graph)}


def _describe(graph: Graph, tiling: Tiling) -> dict[str, float]:
    sizes = graph.node_features[tiling.node, vocabulary.SHAPE_DIMENSIONS].astype(np.float64)
    window = graph.node_features[:, vocabulary.WINDOW_SIZE].max(axis=0)
    elements, size = num_elements(graph), num_bytes(graph)
    parameters = graph.node_opcodes == OPCODE_IDS["parameter"]
    operations = num_operations(graph).sum()
    moved = size[parameters].sum() + size[tiling.node]
    values = {f"output_size_{slot}": float(np.log1p(sizes[slot])) for slot in range(MAX_RANK)}
    values |= {f"window_{slot}": float(window[slot]) for slot in range(WINDOWS)}
    return values | {
        "output_rank": float(tensor_ranks(graph)[tiling.node]),
        "output_elements": float(np.log(elements[tiling.node])),
        "largest_elements": float(np.log(elements.max())),
        "parameter_bytes": float(np.log1p(size[parameters].sum())),
        "contracted_size": float(np.log(contracted_size(graph).max())),
        "operations": float(np.log(operations)),
        "intensity_kernel": float(np.log(operations / moved)),
        "nodes": float(np.log(graph.num_nodes)),
        "in_registers": float(tiling.in_registers),
    }


def _count_opcodes(graph: Graph) -> dict[str, float]:
    counts = np.bincount(graph.node_opcodes, minlength=vocabulary.NUM_OPCODES)
    named = {f"count_{name}": float(counts[OPCODE_IDS[name]]) for name in COUNTED}
    return named | {"count_other": float(counts.sum() - sum(named.values()))}


def _aggregate(graph: Graph) -> dict[str, float]:
    size = num_bytes(graph)
    left = np.ones(graph.num_nodes, bool)
    masks = {}
    for group, names in GROUPS.items():
        ids = [OPCODE_IDS[name] for name in names if name in OPCODE_IDS]
        masks[group] = np.isin(graph.node_opcodes, ids)
        left &= ~masks[group]
    columns = {}
    for group, mask in {**masks, OTHER: left}.items():
        sizes = size[mask] if mask.any() else np.zeros(1)
        for how, value in (("sum", sizes.sum()), ("mean", sizes.mean()), ("max", sizes.max())):
            columns[f"{group}_{how}"] = float(np.log1p(value))
    return columns
