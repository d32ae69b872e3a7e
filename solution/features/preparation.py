"""Prepare every graph before a ranker sees it: correct the padding of its features, then prune it.

In the node features, unused slots of a list of dimension numbers hold 0, which is also a valid
dimension. How many slots are used follows from the tensor's rank, and the rank from its shape. So
the padding -1 is restored without the regenerated data set that the winners needed.

To prune is to keep the nodes within a number of edges (hops) of a configurable node. The result
depends on the graph alone, so it is computed once and kept in a prepared data set, the store. A
store may keep more hops than a model needs: pruning its graphs further gives the same graphs as
preparing the files. So a model that carries its preparation ranks a graph in the same way, whether
the graph comes from a store or from a file.

Two options test findings of the competition's participants: unused slots may hold 0, as in the
files, instead of -1; and dots may list the dimensions that they contract. Both are applied after
reading from a store, so one store serves models with and without these options.

Why prune: of up to 43,615 nodes only a few hundred are configurable, and the others are the same
for every configuration. The winners kept the configurable nodes and their direct neighbours, which
takes a quarter of the memory and is up to five times as fast.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS, PADDING
from solution.features.contractions import mark_contractions
from solution.features.operations import count_used_slots, tensor_ranks

# opcodes whose attribute `dimensions` lists one dimension
ONE_DIMENSION = ("concatenate", "iota", "sort", "all-gather", "all-to-all", "reverse")
VERSION = 1  # version of the preparation: increase it if the same files give other graphs


def repair_padding(graph: Graph) -> Graph:
    """Return the graph with -1 in unused slots of layouts, `dimensions` and convolutions; drop the
    dimensions after the sixth."""
    ranks = tensor_ranks(graph)
    features = graph.node_features.copy()
    _leave_out_later(features, graph.node_opcodes)
    is_convolution = graph.node_opcodes == OPCODE_IDS["convolution"]
    spatial = np.where(is_convolution, np.maximum(ranks - 2, 0), 0)
    _pad(features, vocabulary.NODE_LAYOUT, ranks)
    _pad(features, vocabulary.DIMENSIONS, _listed_dimensions(graph, ranks))
    features[~is_convolution, vocabulary.CONVOLUTION_DIMENSIONS] = PADDING
    _pad(features, vocabulary.CONVOLUTION_INPUT_SPATIAL, spatial)
    _pad(features, vocabulary.CONVOLUTION_KERNEL_SPATIAL, spatial)
    return dataclasses.replace(graph, node_features=features)


def erase_padding(graph: Graph) -> Graph:
    """Return the graph with 0, as in the files, in the slots that repair_padding has set to -1."""
    features = graph.node_features.copy()
    for columns in vocabulary.DIMENSION_NUMBERS:
        features[:, columns] = np.maximum(features[:, columns], 0)
    return dataclasses.replace(graph, node_features=features)


def _listed_dimensions(graph: Graph, ranks: np.ndarray) -> np.ndarray:
    """Return the number of dimension numbers (nodes,) that each node's `dimensions` lists."""
    # highest rank of a node's operands; a reduce also reads scalars (initial value, computation)
    read_ranks = np.zeros(graph.num_nodes, np.int64)
    np.maximum.at(read_ranks, graph.edges[:, 0], ranks[graph.edges[:, 1]])
    is_tuple = graph.node_features[:, vocabulary.IS_TUPLE] > 0
    listed = np.zeros(graph.num_nodes, np.int64)
    rules = {
        "transpose": ranks,
        "broadcast": read_ranks,
        # The shape of a reduce of several tensors is a tuple, whose rank is not known.
        "reduce": np.where(is_tuple, 1, np.maximum(read_ranks - ranks, 0)),
        **dict.fromkeys(ONE_DIMENSION, np.ones_like(ranks)),
    }
    for name, count in rules.items():
        listed = np.where(graph.node_opcodes == OPCODE_IDS[name], count, listed)
    # A slot with another number than 0 is always used.
    return np.maximum(listed, count_used_slots(graph.node_features[:, vocabulary.DIMENSIONS]))


def _leave_out_later(features: np.ndarray, opcodes: np.ndarray) -> None:
    """Drop dimensions after the sixth from all lists, in place. To have six entries, a layout gets
    its missing dimensions appended in descending order, a transpose in ascending order, and any
    other list zeros, as in the files. A convolution's later dimensions become the sixth."""
    orders, lists = vocabulary.NODE_LAYOUT, vocabulary.DIMENSIONS
    for columns in (orders, lists):
        for node in np.flatnonzero((features[:, columns] >= MAX_RANK).any(axis=1)):
            kept = [k for k in features[node, columns].astype(np.int64).tolist() if k < MAX_RANK]
            missing = sorted(set(range(MAX_RANK)) - set(kept), reverse=columns == orders)
            if columns == lists and opcodes[node] != OPCODE_IDS["transpose"]:
                missing = [0] * MAX_RANK
            features[node, columns] = (kept + missing)[:MAX_RANK]
    convolution = features[:, vocabulary.CONVOLUTION_DIMENSIONS]
    np.minimum(convolution, MAX_RANK - 1, out=convolution)


def _pad(features: np.ndarray, columns: slice, used: np.ndarray) -> None:
    block = features[:, columns]
    block[np.arange(MAX_RANK)[: block.shape[1]] >= used[:, None]] = PADDING


def keep_neighbourhood(graph: Graph, hops: int = 1) -> Graph:
    """Return the graph with the nodes within `hops` edges of a configurable node, in order; a tile
    graph keeps all nodes."""
    if len(graph.configurable) == 0:
        return graph
    return keep_nodes(graph, np.flatnonzero(neighbourhood(graph, hops)))


def keep_nodes(graph: Graph, kept: np.ndarray) -> Graph:
    """Return the graph with the nodes `kept` (k,) in this order; all configurable nodes must be
    among them. If nothing changes, return the same graph, because its results are cached."""
    if np.array_equal(kept, np.arange(graph.num_nodes)):
        return graph
    position = np.full(graph.num_nodes, -1)
    position[kept] = np.arange(len(kept))
    inside = (position[graph.edges] >= 0).all(axis=1)
    return dataclasses.replace(
        graph,
        node_features=graph.node_features[kept],
        node_opcodes=graph.node_opcodes[kept],
        edges=position[graph.edges[inside]],
        configurable=position[graph.configurable],
        summed=None if graph.summed is None else graph.summed[kept],
    )


def merge_rest(graph: Graph, hops: int = 1) -> Graph:
    """Return the pruned graph, in which each connected component of pruned nodes is merged into one
    node. This node has their mean features, their edges to kept nodes without repetitions, and the
    opcode vocabulary.VIRTUAL."""
    if len(graph.configurable) == 0:
        return graph
    keep = neighbourhood(graph, hops)
    kept, rest = np.flatnonzero(keep), np.flatnonzero(~keep)
    if len(rest) == 0:
        return graph
    pieces = _connected_pieces(graph, rest)
    position = np.empty(graph.num_nodes, np.int64)
    position[kept] = np.arange(len(kept))
    position[rest] = len(kept) + pieces
    num_pieces = pieces.max() + 1
    edges = position[graph.edges]
    return dataclasses.replace(
        graph,
        node_features=np.concatenate(
            [graph.node_features[kept], _group_means(graph.node_features[rest], pieces)]
        ),
        node_opcodes=np.concatenate(
            [graph.node_opcodes[kept], np.full(num_pieces, vocabulary.VIRTUAL, np.uint8)]
        ),
        edges=_drop_repeated(edges, len(kept)),
        configurable=position[graph.configurable],
        summed=None if graph.summed is None else _append_none(graph.summed[kept], num_pieces),
    )


def keep_everything(graph: Graph, hops: int = 0) -> Graph:
    """Return the graph unchanged; `hops` is a parameter of all pruning functions, unused here."""
    return graph


PRUNINGS = {"neighbourhood": keep_neighbourhood, "virtual": merge_rest, "nothing": keep_everything}


def neighbourhood(graph: Graph, hops: int) -> np.ndarray:
    """Return a mask (nodes,): True for nodes at most `hops` edges from a configurable node, in
    either direction."""
    reached = np.zeros(graph.num_nodes, bool)
    reached[graph.configurable] = True
    touched = np.zeros(len(graph.edges), bool)
    for _ in range(hops):
        before, touched = touched, reached[graph.edges].any(axis=1)
        if np.array_equal(touched, before):  # no edge leads further
            break
        reached[graph.edges[touched].ravel()] = True
    return reached


def _connected_pieces(graph: Graph, rest: np.ndarray) -> np.ndarray:
    """Return the index (len(rest),) of the connected component of each of the nodes `rest`."""
    from scipy.sparse import coo_array  # importing it is slow
    from scipy.sparse.csgraph import connected_components

    local = np.full(graph.num_nodes, -1)
    local[rest] = np.arange(len(rest))
    edges = local[graph.edges]
    edges = edges[(edges >= 0).all(axis=1)]
    links = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(len(rest),) * 2)
    return connected_components(links, directed=False)[1].astype(np.int64)


def _append_none(summed: np.ndarray, count: int) -> np.ndarray:
    """Return Graph.summed with rows for `count` more nodes, which contract no dimensions."""
    return np.concatenate([summed, np.full((count, *summed.shape[1:]), -1, np.int8)])


def _group_means(rows: np.ndarray, groups: np.ndarray) -> np.ndarray:
    sums = np.zeros((groups.max() + 1, rows.shape[1]))
    np.add.at(sums, groups, rows)
    return (sums / np.bincount(groups)[:, None]).astype(np.float32)


def _drop_repeated(edges: np.ndarray, first_virtual: int) -> np.ndarray:
    """Return the edges without self-loops of virtual nodes, and without repetitions of edges that
    touch a virtual node."""
    edges = edges[(edges[:, 0] != edges[:, 1]) | (edges[:, 0] < first_virtual)]
    _, first = np.unique(edges, axis=0, return_index=True)
    is_first = np.isin(np.arange(len(edges)), first)
    return edges[is_first | ~(edges >= first_virtual).any(axis=1)]


@dataclass(frozen=True)
class Preparation:
    """A function that turns the graph of a file into the graph that rankers are given."""

    # keep nodes of a layout graph at most this many edges from a configurable node; None: all
    hops: int | None = 1
    padding: int = PADDING  # value of unused slots of dimension numbers: -1, or 0 as in the files
    contractions: bool = False  # True: dots list their contracted dimensions (mark_contractions)

    def __call__(self, graph: Graph) -> Graph:
        """Return the graph pruned and with corrected padding."""
        return self.prune(repair_padding(graph))

    def prune(self, graph: Graph) -> Graph:
        """Return a graph with correct padding after pruning; if the settings say so, mark
        contractions and erase the padding."""
        kept = graph if self.hops is None else keep_neighbourhood(graph, self.hops)
        kept = mark_contractions(kept) if self.contractions else kept
        return kept if self.padding == PADDING else erase_padding(kept)

    def describe(self) -> dict[str, Any]:
        """Return the record that a store or model keeps: the version, the hops, and the options
        (padding, contractions) that differ from their defaults."""
        described: dict[str, Any] = {"version": VERSION, "hops": self.hops}
        if self.padding != PADDING:
            described["padding"] = self.padding
        return described | ({"contractions": True} if self.contractions else {})
