"""What a net on colours has to compute for some configurations of some graphs.

Everything here is counting and sorting; the net multiplies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solution.domain.codebook import Codebook
from solution.domain.neighbours import Neighbours
from solution.domain.ragged import offsets, starts_of
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
    """What of a layout graph decides which colours there are, and how they are summed."""

    operands: Neighbours
    consumers: Neighbours
    configurable: np.ndarray  # (configurable,) int64
    shares: np.ndarray  # (nodes, NUM_SHARES) float32: 1 / nodes, of operations, of three tensors
    constraints: Constraints
    codebook: Codebook  # its codes may be a mapped file, of which only what is asked for is read

    @property
    def num_nodes(self) -> int:
        return len(self.shares)

    @property
    def num_pairs(self) -> int:
        return len(self.codebook.layouts)


class Marks(NamedTuple):
    """What some colours know of the constraints on their tensor; of most there is nothing."""

    colours: np.ndarray  # (marked,) int64, ascending
    values: np.ndarray  # (marked, extras) float32

    def expand(self, count: int) -> np.ndarray:
        """Those of all colours (count, extras)."""
        every = np.zeros((count, self.values.shape[1]), np.float32)
        every[self.colours] = self.values
        return every


class Round(NamedTuple):
    """What the colours after a round are made of."""

    aggregation: SparseRows  # (colours after, 3 x colours before): the messages each adds up
    marks: Marks
    parents: np.ndarray  # (colours after,) int32 which colour each was before


@dataclass(frozen=True)
class Steps:
    """The nodes of the graphs, and their (node, layout) pairs, are numbered one after the other."""

    nodes: np.ndarray  # (colours 0,) int64 the node of each
    configured: np.ndarray  # (configured,) int64 those colours 0 that have a layout
    pairs: np.ndarray  # (configured,) int64 their (node, layout) pair
    rounds: list[Round]
    last: Colours  # after all rounds


def derive_steps(graphs: Sequence[Structure], configs: np.ndarray, rounds: int) -> Steps:
    """What the net computes for `configs` (configs, graphs), rows of the codes of each graph."""
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
    """The colours before any round, and of each its (node, layout) pair, below 0 without one."""
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
    """Features (1 + tensors, configs, extras) uint8 of nothing and of tensors, and whose they are.

    The second is, of each node, which of the first are its own: 0, nothing, of most.
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
    """What is summed over nodes in each configuration: nodes, rows (ascending) and weights (n,)."""
    shares = np.concatenate([graph.shares for graph in graphs])
    graph_of = np.repeat(np.arange(len(graphs)), [graph.num_nodes for graph in graphs])
    node, share = np.nonzero(shares)
    row = graph_of[node] * NUM_SHARES + share
    order = np.argsort(row, kind="stable")
    return node[order], row[order], shares[node, share][order]


def find_pooling(graphs: Sequence[Structure], colours: Colours) -> SparseRows:
    """Sums over the nodes of each graph, weighted by their shares, for each configuration.

    ((1 + 2 x configs) x graphs x NUM_SHARES, colours): the sums over the steady nodes with their
    most frequent colours; what those of each configuration differ from them; and its sums over the
    other nodes. A steady node has its most frequent colour in at least half of the configurations.
    It is summed with it once, and then of each configuration only if it differs: that takes two
    entries. Any other is summed in each.
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
