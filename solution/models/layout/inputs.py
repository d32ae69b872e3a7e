"""Convert a graph into the numpy arrays that the layout net reads.

A *pair* is a configurable node together with one of the layouts that configurations give it.
"""

from dataclasses import dataclass

import numpy as np

from solution.domain.codebook import Codebook
from solution.domain.graph import Graph
from solution.domain.neighbours import Neighbours
from solution.features.layout.conflicts import Ordered, find_constraints, find_ordered
from solution.features.layout.frequency import share_of_pairs
from solution.features.layout.tensors import FEATURES, describe_layouts
from solution.features.nodes import numeric_features
from solution.features.preparation import PRUNINGS
from solution.features.work import configurable_shares, tensor_shares
from solution.models.layout.colour_refinement import NUM_SHARES, Structure

# two features besides FEATURES: share of configurations with the layout, and its logarithm
NUM_PAIR_FEATURES = len(FEATURES) + 2


@dataclass(frozen=True)
class LayoutArrays:
    """The layout net's inputs for one graph: its nodes after pruning, and its distinct
    configurations."""

    opcodes: np.ndarray  # (nodes,) int64: opcode number of each node
    numeric: np.ndarray  # (nodes, NUM_NUMERIC) float32: numeric node features
    # (pairs, 18) int8: the layout of each (node, layout) pair, its 18 numbers shifted to 0 ... 6
    pair_tokens: np.ndarray
    pair_features: np.ndarray  # (pairs, NUM_PAIR_FEATURES) float32: see describe_pairs
    # (distinct configs,) bool: the reference list, which sets means, deviations and frequencies
    listed: np.ndarray
    structure: Structure
    ordered: Ordered  # constraints on tensors whose layout several configurable nodes constrain


def describe_graph(graph: Graph, pruning: str, hops: int) -> LayoutArrays:
    """Return the layout net's inputs for a graph.

    Nodes and edges are those of the pruned graph. Features of layouts are computed on `graph`,
    which still has all its nodes.

    Args:
        pruning: a name in solution.features.preparation.PRUNINGS.
        hops: the pruning keeps nodes at most this many edges from a configurable node.
    """
    pairs = graph.layouts
    pruned = PRUNINGS[pruning](graph, hops)
    consumer, producer = pruned.edges.T
    shares = np.zeros((pruned.num_nodes, NUM_SHARES), np.float32)
    shares[:, 0] = 1 / pruned.num_nodes
    shares[pruned.configurable, 1] = configurable_shares(graph)[:, 0]
    shares[pruned.configurable, 2:] = tensor_shares(graph)
    return LayoutArrays(
        opcodes=pruned.node_opcodes.astype(np.int64),
        numeric=numeric_features(pruned),
        pair_tokens=pairs.layouts + np.int8(1),
        pair_features=describe_pairs(graph, pairs, share_of_pairs(pairs, graph.listed)),
        listed=graph.listed_distinct,
        structure=Structure(
            operands=Neighbours.operands(pruned.edges, pruned.num_nodes),
            consumers=Neighbours.consumers(pruned.edges, pruned.num_nodes),
            configurable=pruned.configurable,
            shares=shares,
            constraints=find_constraints(pruned),
            codebook=pairs,
        ),
        ordered=find_ordered(pruned),
    )


def describe_pairs(graph: Graph, pairs: Codebook, share: np.ndarray) -> np.ndarray:
    """Return features (pairs, NUM_PAIR_FEATURES) float32 of (node, layout) pairs.

    The last two columns are the share of configurations that use the pair, and its logarithm. The
    share is at least 1 / number of configurations in the reference list.

    Args:
        share: (pairs,) the share of the graph's reference list that uses each pair.
    """
    count = graph.num_configs if graph.listed is None else graph.listed.sum()
    least = np.maximum(share, 1 / count)
    described = describe_layouts(graph, pairs)
    return np.column_stack([described, least, np.log(least)]).astype(np.float32)
