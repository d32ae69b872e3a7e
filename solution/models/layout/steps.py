"""Derive what a net on colours computes for some configurations of some graphs.

This file only counts and sorts; the net multiplies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solution.domain.codebook import Codebook
from solution.domain.neighbours import Neighbours, offsets, starts_of
from solution.features.layout import conflicts
from solution.features.layout.conflicts import Constraints
from solution.models.layout.colour_refinement import (
    Colours,
    aggregate,
    number_small,
    refine,
)
from solution.models.nets.sparse_rows import SparseRows

NUM_SHARES = 5


@dataclass(frozen=True)
class Structure:
    """Static inputs of colour refinement and pooling for one graph."""

    operands: Neighbours
    consumers: Neighbours
    configurable: np.ndarray  # (configurable,) int64
    # (nodes, NUM_SHARES) float32: 1 / nodes, shares of operations, shares of three tensors' bytes
    shares: np.ndarray
    constraints: Constraints
    codebook: Codebook  # its codes may be a memory-mapped file; only requested rows are read

    @property
    def num_nodes(self) -> int:
        return len(self.shares)

    @property
    def num_pairs(self) -> int:
        return len(self.codebook.layouts)


class Marks(NamedTuple):
    """Features of the constraints on the tensors of some colours; most colours have none."""

    colours: np.ndarray  # (marked,) int64, ascending
    values: np.ndarray  # (marked, extras) float32

    def expand(self, count: int) -> np.ndarray:
        """Return the features of all colours (count, extras)."""
        every = np.zeros((count, self.values.shape[1]), np.float32)
        every[self.colours] = self.values
        return every


class Round(NamedTuple):
    """How colours after a round follow from the colours before it."""

    aggregation: SparseRows  # (colours after, 3 x colours before): the messages that each sums
    marks: Marks
    parents: np.ndarray  # (colours after,) int32, the colour before the round


@dataclass(frozen=True)
class Steps:
    """All rounds of a batch; nodes and (node, layout) pairs of its graphs are numbered
    consecutively."""

    nodes: np.ndarray  # (colours 0,) int64, the node of each
    configured: np.ndarray  # (configured,) int64, the colours 0 that have a layout
    pairs: np.ndarray  # (configured,) int64, their (node, layout) pairs
    rounds: list[Round]
    last: Colours  # after the last round


def derive_steps(graphs: Sequence[Structure], configs: np.ndarray, rounds: int) -> Steps:
    """Return the steps for `configs` (configs, graphs), rows of each graph's codes."""
    colours, pairs = _number_pairs(graphs, configs)
    configured = np.flatnonzero(pairs >= 0)
    described, places = _describe_constraints(graphs, configs)
    operands = Neighbours.join([graph.operands for graph in graphs])
    consumers = Neighbours.join([graph.consumers for graph in graphs])
    blocks, last = [], colours
    for _ in range(rounds):
        after = refine(last, operands, consumers)
        aggregation = aggregate(last, after, operands, consumers)
        known = described[places[after.nodes], after.configs]
        marked = np.flatnonzero(known.any(axis=1))
        marks = Marks(marked, known[marked].astype(np.float32))
        blocks.append(Round(aggregation, marks, last.at(after)))
        last = after
    return Steps(colours.nodes, configured, pairs[configured], blocks, last)


def _number_pairs(graphs: Sequence[Structure], configs: np.ndarray) -> tuple[Colours, np.ndarray]:
    """Return the colours before the first round, and each one's pair, below 0 if it has none."""
    sizes = [graph.num_nodes for graph in graphs]
    first_pairs = offsets([graph.num_pairs for graph in graphs])
    total = sum(sizes)
    labels = np.repeat(np.arange(total)[:, None], len(configs), axis=1)
    for graph, rows, node, pair in zip(graphs, configs.T, offsets(sizes), first_pairs, strict=True):
        first = graph.codebook.starts[:-1] + (total + pair)
        labels[node + graph.configurable] = (graph.codebook.codes[rows] + first).T
    colours = number_small(labels, total + sum(graph.num_pairs for graph in graphs))
    return colours, labels[colours.nodes, colours.configs] - total


def _describe_constraints(
    graphs: Sequence[Structure], configs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return features (1 + tensors, configs, extras) uint8 of constraints, and each node's row.

    Row 0 is for nodes whose tensor has no constraints, which are most.
    """
    places = np.zeros(sum(graph.num_nodes for graph in graphs), np.int64)
    described = [np.zeros((1, len(configs), len(conflicts.FEATURES)), np.uint8)]
    first = 0
    for graph, rows in zip(graphs, configs.T, strict=True):
        tensors = graph.constraints.nodes
        places[first + tensors] = np.arange(len(tensors)) + sum(map(len, described))
        described.append(graph.constraints.describe(graph.codebook.codes[rows]).transpose(1, 0, 2))
        first += graph.num_nodes
    return np.concatenate(described), places


def list_shares(graphs: Sequence[Structure]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sums over nodes in each configuration: nodes, rows (ascending) and weights
    (n,)."""
    shares = np.concatenate([graph.shares for graph in graphs])
    graph_of = np.repeat(np.arange(len(graphs)), [graph.num_nodes for graph in graphs])
    node, share = np.nonzero(shares)
    row = graph_of[node] * NUM_SHARES + share
    order = np.argsort(row, kind="stable")
    return node[order], row[order], shares[node, share][order]


def find_pooling(graphs: Sequence[Structure], colours: Colours) -> SparseRows:
    """Return the matrix of weighted sums over the nodes of each graph, for each configuration.

    ((1 + 2 x configs) x graphs x NUM_SHARES, colours). Its rows are: the sums over steady nodes
    with their most frequent colours; each configuration's differences from them; each
    configuration's sums over the other nodes. A steady node has its most frequent colour in at
    least half of the configurations. It is summed once, and again for each configuration that
    differs, with two entries.
    """
    node, row, weights = list_shares(graphs)
    usual = colours.find_most_frequent()
    differs = colours.numbers != usual[:, None]
    num_rows, num_configs = len(graphs) * NUM_SHARES, colours.numbers.shape[1]
    is_steady = (2 * np.count_nonzero(differs, axis=1) <= num_configs)[node]
    others, other_weights = node[~is_steady], weights[~is_steady]
    each = np.tile(np.bincount(row[~is_steady], minlength=num_rows), num_configs)
    node, row, weights = node[is_steady], row[is_steady], weights[is_steady]
    # np.nonzero takes three times as long.
    config, which = np.divmod(np.flatnonzero(differs[node].T), len(node))
    changed = np.stack([colours.numbers[node[which], config], usual[node[which]]], axis=1)
    signed = np.stack([weights[which], -weights[which]], axis=1)
    counts = np.bincount(config * num_rows + row[which], minlength=num_rows * num_configs)
    sizes = (np.bincount(row, minlength=num_rows), 2 * counts, each)
    columns = (usual[node], changed.ravel(), colours.numbers[others].T.ravel())
    return SparseRows(
        starts=starts_of(np.concatenate(sizes)).astype(np.int32),
        columns=np.concatenate(columns),
        values=np.concatenate([weights, signed.ravel(), np.tile(other_weights, num_configs)]),
        num_columns=len(colours.nodes),
    )
