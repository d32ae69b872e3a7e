"""Read graphs with costs from npz files, programs of XLA and names of workloads.

A node is an operation as the compiler lists it; the nodes of a called computation stand before the
caller. An XLA program does not say which parameters are trained, so each parameter is held in
memory once, without a gradient or momentum.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from solution.data.npz import read_opcodes
from solution.data.npz_arrays import WHOLE_NUMBERS, open_arrays, read_array
from solution.domain import vocabulary
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.features.operations import num_bytes, num_operations
from solution.placement.graphs import cost_graph
from solution.placement.graphs.workloads import WORKLOADS
from solution.system.errors import InputError

NPZ = ".npz"


def read_cost_graph(source: str, read_module: Callable[[Path], Graph]) -> cost_graph.CostGraph:
    """Read the graph of an npz file, a program of XLA (by `read_module`), or a workload's name.
    Raises InputError if `source` is none of these, or the graph is invalid or has a cycle."""
    if source in WORKLOADS:
        return replace(WORKLOADS[source].make(), name=source)
    path = Path(source)
    if path.suffix == NPZ:
        return cost_graph_of(_read_npz(path))
    if path.exists():
        return cost_graph_of(read_module(path))
    raise InputError(
        f"{source}: there is no such file. Expected an npz file, a program of XLA (.pb, .hlo, "
        f".mlir, .py), or a workload: {', '.join(WORKLOADS)}."
    )


def _read_npz(path: Path) -> Graph:
    """Read the nodes and edges of a tile or layout file; its configurations are not read."""
    with open_arrays(path) as archive:
        opcodes = read_opcodes(archive)
        shape = (len(opcodes), vocabulary.NUM_NODE_FEATURES)
        return Graph(
            name=path.stem,
            collection=collection("tile:xla"),
            node_features=read_array(archive, "node_feat", shape).astype(np.float32),
            node_opcodes=opcodes,
            edges=read_array(archive, "edge_index", (None, 2), WHOLE_NUMBERS).astype(np.int64),
            configurable=np.empty(0, np.int64),
            configs=np.zeros((1, vocabulary.NUM_TILE_FEATURES), np.float32),
            runtimes=None,
        )


def cost_graph_of(graph: Graph) -> cost_graph.CostGraph:
    """Return the cost graph of a program in the competition's format."""
    kinds = cost_graph.FUSION_KINDS[
        np.minimum(graph.node_opcodes, len(cost_graph.FUSION_KINDS) - 1)
    ]
    size = num_bytes(graph)
    is_parameter = graph.node_opcodes == vocabulary.OPCODE_IDS["parameter"]
    element = graph.node_features[:, vocabulary.ELEMENT_TYPE]
    # a multiply-add counts as two operations, as in the peak rates of devices
    times = np.where(kinds == cost_graph.PRODUCT, 2.0, 1.0)
    times[kinds == cost_graph.DATA] = 0
    columns = cost_graph.Columns(
        graph.node_opcodes.astype(np.uint8), kinds,
        times * num_operations(graph), size, size * is_parameter,
        graph.node_features[:, vocabulary.SHAPE_DIMENSIONS].astype(np.float32),
        element.argmax(axis=1).astype(np.uint8), np.full(graph.num_nodes, -1),
    )  # fmt: skip
    return cost_graph.build_cost_graph(graph.name, columns, graph.edges, _tie(kinds, graph.edges))


def _tie(kinds: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return numbers (nodes,); nodes with the same number share a device. A node that runs no
    kernel shares the device of its first producer or, without one, of its first reader."""
    # A DATA node's neighbour is its first reader, then overwritten by its first producer, if any.
    # Another node's neighbour is the node itself.
    neighbour = np.arange(len(kinds))
    for columns in ((1, 0), (0, 1)):
        end, other = edges[:, columns[0]], edges[:, columns[1]]
        ties = kinds[end] == cost_graph.DATA
        first = np.lexsort((other[ties], end[ties]))[::-1]
        neighbour[end[ties][first]] = other[ties][first]
    # A constant that only a tuple reads, and the tuple whose first producer it is, are each
    # other's neighbour: give both the smaller number.
    nodes = np.arange(len(kinds))
    neighbour = np.where(neighbour[neighbour] == nodes, np.minimum(neighbour, nodes), neighbour)
    # pointer jumping: each step doubles the length of the chains that were followed
    for _ in range(int(np.log2(len(kinds) + 1)) + 1):
        neighbour = neighbour[neighbour]
    return neighbour
