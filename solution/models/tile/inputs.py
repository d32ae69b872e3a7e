"""Return what the tile nets read of a kernel, as arrays."""

from dataclasses import dataclass

import numpy as np

from solution.domain.graph import Graph
from solution.features.nodes import numeric_features
from solution.features.table import distinct_rows
from solution.features.tile.fusions import inline_fusions
from solution.features.tile.tiling import find_tiling


@dataclass(frozen=True)
class KernelArrays:
    """A kernel with inlined fusions, and its distinct configurations."""

    opcodes: np.ndarray  # (nodes,) int64
    numeric: np.ndarray  # (nodes, NUM_NUMERIC) float32
    edge_index: np.ndarray  # (2, edges) int64, from operand to consumer
    output: int  # the node of the tiled tensor
    table: np.ndarray  # (distinct configs, columns) float32


def describe_kernel(graph: Graph) -> KernelArrays:
    """Return the arrays of the nodes and of the distinct configurations."""
    kernel = inline_fusions(graph)
    return KernelArrays(
        opcodes=kernel.node_opcodes.astype(np.int64),
        numeric=numeric_features(kernel),
        edge_index=kernel.edges.T[::-1].copy(),
        output=find_tiling(kernel).node,
        table=distinct_rows(graph),
    )
