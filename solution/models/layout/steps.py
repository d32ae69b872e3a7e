"""What a net on colours has to compute for some configurations of some graphs.

Everything here is counting and sorting; the net multiplies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solution.domain.codebook import Codebook
from solution.domain.ragged import offsets, starts_of
from solution.features.layout import conflicts
from solution.features.layout.conflicts import Constraints
from solution.models.layout.colour_refinement import (
    Colours,
    Neighbours,
    aggregate,
    number_small,
    refine,
)
from solution.models.nets.sparse_rows import SparseRows, select

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


@dataclass(frozen=True)
class Steps:
    """The nodes of the graphs, and their (node, layout) pairs, are numbered one after the other."""

    nodes: np.ndarray  # (colours 0,) int64 the node of each
    configured: np.ndarray  # (configured,) int64 those colours 0 that have a layout
    pairs: np.ndarray  # (configured,) int64 their (node, layout) pair
    # Of each round: which messages each colour adds up, what it knows besides, and its parent.
    rounds: list[tuple[SparseRows, np.ndarray, SparseRows]]
    pooling: SparseRows  # (configs x graphs x NUM_SHARES, colours after all rounds)


def derive_steps(graphs: Sequence[Structure], configs: np.ndarray, rounds: int) -> Steps:
    """What the net computes for `configs` (configs, graphs), rows of the codes of each graph."""
    sizes = [graph.num_nodes for graph in graphs]
    total = sum(sizes)
    labels = np.repeat(np.arange(total)[:, None], len(configs), axis=1)
    extra = np.zeros((total, len(configs), len(conflicts.FEATURES)), np.float32)
    first_pairs = offsets([graph.num_pairs for graph in graphs])
    for graph, rows, node, pair in zip(graphs, configs.T, offsets(sizes), first_pairs, strict=True):
        codes = graph.codebook.codes[rows]
        first = graph.codebook.starts[:-1] + (total + pair)
        labels[node + graph.configurable] = (codes + first).T
        constrained = graph.constraints.describe(codes)
        extra[node + graph.constraints.nodes] = constrained.transpose(1, 0, 2)
    colours = number_small(labels, total + sum(graph.num_pairs for graph in graphs))
    pairs = labels[colours.nodes, colours.configs] - total
    configured = np.flatnonzero(pairs >= 0)
    operands = Neighbours.join([graph.operands for graph in graphs])
    consumers = Neighbours.join([graph.consumers for graph in graphs])
    blocks, last = [], colours
    for _ in range(rounds):
        after = refine(last, operands, consumers)
        aggregation = aggregate(last, after, operands, consumers)
        parents = select(last.at(after), len(last.nodes))
        blocks.append((aggregation, extra[after.nodes, after.configs], parents))
        last = after
    return Steps(colours.nodes, configured, pairs[configured], blocks, _pool(graphs, last))


def _pool(graphs: Sequence[Structure], colours: Colours) -> SparseRows:
    """Sums over the nodes of each graph, weighted by their shares, for each configuration."""
    shares = np.concatenate([graph.shares for graph in graphs])
    graph_of = np.repeat(np.arange(len(graphs)), [graph.num_nodes for graph in graphs])
    node, share = np.nonzero(shares)
    row = graph_of[node] * NUM_SHARES + share
    order = np.argsort(row, kind="stable")  # within one configuration, and so within each
    node, share = node[order], share[order]
    num_configs = colours.numbers.shape[1]
    counts = np.bincount(row, minlength=len(graphs) * NUM_SHARES)
    return SparseRows(
        starts=starts_of(np.tile(counts, num_configs)),
        columns=colours.numbers[node].T.ravel(),
        values=np.tile(shares[node, share], num_configs),
        num_columns=len(colours.nodes),
    )
