"""Return what the layout net reads of a graph, as arrays."""

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

NUM_PAIR_FEATURES = len(FEATURES) + 2  # and the frequency of the layout, as share and logarithm


@dataclass(frozen=True)
class LayoutArrays:
    """A pruned graph and its distinct configurations."""

    opcodes: np.ndarray  # (nodes,) int64
    numeric: np.ndarray  # (nodes, NUM_NUMERIC) float32
    pair_tokens: np.ndarray  # (pairs, 18) int8, 0 ... 6
    pair_features: np.ndarray  # (pairs, NUM_PAIR_FEATURES) float32
    listed: np.ndarray  # (distinct configs,) bool: the reference list that others are scored beside
    structure: Structure
    ordered: Ordered  # the constraints on tensors that have several


def describe_graph(graph: Graph, pruning: str, hops: int) -> LayoutArrays:
    """Return arrays of the pruned graph; layouts are described on the graph as given."""
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
    """Return features of pairs (pairs, NUM_PAIR_FEATURES) float32.

    A layout that no candidate has is as rare as possible.

    Args:
        share: (pairs,) the share of the graph's list that uses each.
    """
    count = graph.num_configs if graph.listed is None else graph.listed.sum()
    least = np.maximum(share, 1 / count)
    described = describe_layouts(graph, pairs)
    return np.column_stack([described, least, np.log(least)]).astype(np.float32)
