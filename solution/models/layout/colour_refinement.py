"""Find the (node, configuration) pairs that a graph net cannot distinguish, to compute each once.

After k rounds of message passing, the value of a node depends only on the layouts of nodes at most
k edges away. Two configurations that agree on those layouts give the node the same value; we say
that the node has the same *colour* in both. Candidate configurations of a search agree in most
layouts: over 48 sampled configurations, a node has 2 to 11 times fewer colours than configurations
after one round. So the net computes one value for each colour instead of one for each
(configuration, node) pair. The results differ by rounding only.

    configurations ──▶ colours 0 ──round──▶ colours 1 ──round──▶ colours 2 ──▶ sums over nodes
                       node, layout         1 hop                2 hops

Words of this file: a *pair* is a configurable node with one of its layouts; a *message* is a
colour's vector multiplied by one of the net's weight matrices, which neighbours sum up; the *marks*
of a colour are features of the layout constraints on the node's tensor.

Source: colour refinement (Weisfeiler and Leman, 1968), as used to compare what graph nets can see
(Xu et al., "How powerful are graph neural networks?", 2019).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solution.domain.codebook import FACTORS, Codebook, mix
from solution.domain.neighbours import Neighbours, offsets, starts_of
from solution.features.layout.tensors import CONFLICTS, Constraints
from solution.models.nets.forward import SparseRows, sum_entries

BLOCK = 1 << 15  # `refine` works on blocks of about this many (node, configuration) pairs
NUM_SHARES = 5  # number of weighted sums over nodes, see Structure.shares
# odd numbers that the hashes of a node's operands, and of its consumers, are multiplied by
FOR_OPERANDS, FOR_CONSUMERS = FACTORS


@dataclass(frozen=True)
class Colours:
    """The colours of all nodes after some rounds. A node has the same colour in two configurations
    if the net gives it the same value in both. The colours of a node have consecutive numbers."""

    # (nodes, configs) int32: the node's colour in each configuration
    numbers: np.ndarray
    nodes: np.ndarray  # (colours,) int64: the node that each colour belongs to
    configs: np.ndarray  # (colours,) int64: one configuration in which the node has this colour

    @classmethod
    def join(cls, parts: Sequence["Colours"]) -> "Colours":
        """Join the Colours of consecutive ranges of nodes; renumber nodes and colours."""
        if len(parts) == 1:
            return parts[0]
        firsts = offsets([len(part.nodes) for part in parts])
        nodes = offsets([len(part.numbers) for part in parts])
        return cls(
            np.concatenate(
                [part.numbers + np.int32(n) for part, n in zip(parts, firsts, strict=True)]
            ),
            np.concatenate([part.nodes + node for part, node in zip(parts, nodes, strict=True)]),
            np.concatenate([part.configs for part in parts]),
        )

    def at(self, others: "Colours") -> np.ndarray:
        """Return for each colour of `others` the colour (colours of `others`,) int32 that its node
        has in `self` in the same configuration."""
        return self.numbers[others.nodes, others.configs]

    def find_most_frequent(self) -> np.ndarray:
        """Return the number (nodes,) of each node's most frequent colour (distinct value)."""
        frequency = np.bincount(self.numbers.ravel(), minlength=len(self.nodes))
        order = np.argsort(frequency, kind="stable")
        usual = np.empty(len(self.numbers), np.int32)
        # Assign colours in ascending order of frequency: the last assignment to a node stays.
        usual[self.nodes[order]] = order
        return usual


def number_small(labels: np.ndarray, count: int) -> Colours:
    """Turn `labels` (nodes, configs) from 0 to `count` - 1 into Colours, without sorting. A label
    that occurs becomes a colour. No label may occur at two nodes."""
    flat = labels.ravel()
    first = np.full(count, len(flat))
    # first[label] = index of its first occurrence: in reverse order it is written last, and stays
    first[flat[::-1]] = np.arange(len(flat))[::-1]
    is_there = first < len(flat)
    numbers = (np.cumsum(is_there, dtype=np.int32) - np.int32(1))[labels]
    nodes, configs = np.divmod(first[is_there], labels.shape[1])
    return Colours(numbers, nodes, configs)


def number_colours(labels: np.ndarray) -> Colours:
    """Turn hashes `labels` (nodes, configs) uint64 into Colours: equal hashes of a node become one
    colour. The top ceil(log2(configs)) bits of a hash are dropped, to make room for the index of
    the configuration."""
    num_nodes, num_configs = labels.shape
    # Pack a label and the configuration's index into one number, and sort these numbers: that is 20
    # times as fast as argsort of the labels.
    bits = np.uint64((num_configs - 1).bit_length())
    keys = labels << bits
    keys |= np.arange(num_configs, dtype=np.uint64)
    keys.sort(axis=1)
    begins = np.ones(labels.shape, bool)
    ordered = keys >> bits
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=begins[:, 1:])
    keys &= (np.uint64(1) << bits) - np.uint64(1)
    entries = keys.view(np.int64)  # only the configuration's index is left of each key
    entries += np.arange(0, num_nodes * num_configs, num_configs)[:, None]
    numbers = np.empty(labels.shape, np.int32)
    numbers.ravel()[entries.ravel()] = np.cumsum(begins, dtype=np.int32) - np.int32(1)
    return Colours(numbers, *np.divmod(entries[begins], num_configs))


def refine(colours: Colours, operands: Neighbours, consumers: Neighbours) -> Colours:
    """Return the colours after another round. A node gets one colour for two configurations if it,
    its operands and its consumers had equal colours in both (up to 64-bit collisions)."""
    mixed = mix(colours.numbers.astype(np.uint64))
    num_nodes, num_configs = mixed.shape
    step = max(1, BLOCK // num_configs)
    parts = []
    # One block of nodes at a time, so that intermediate arrays stay in the processor's cache.
    for begin in range(0, num_nodes, step):
        part = slice(begin, begin + step)
        labels = _add_neighbours(mixed, part, operands, consumers)
        parts.append(number_colours(labels))
    return Colours.join(parts)


def mix_neighbours(keys: np.ndarray, operands: Neighbours, consumers: Neighbours) -> np.ndarray:
    """Return hashes (nodes, k) that combine the keys of each node with the keys of its operands and
    consumers, column by column. `keys`: (nodes, k) uint64."""
    return _add_neighbours(mix(keys), slice(0, len(keys)), operands, consumers)


def _add_neighbours(
    mixed: np.ndarray, part: slice, operands: Neighbours, consumers: Neighbours
) -> np.ndarray:
    """Return hashes (nodes in `part`, k) that combine each node with its neighbours; `mixed`
    (nodes, k) has the hashed keys of all nodes."""
    # mixed(node) + FOR_OPERANDS * sum of mixed(operands) + FOR_CONSUMERS * sum of mixed(consumers)
    labels = sum_entries(*operands.cut(part), mixed) * FOR_OPERANDS
    labels += sum_entries(*consumers.cut(part), mixed) * FOR_CONSUMERS
    labels += mixed[part]
    return labels


def aggregate(
    before: Colours, after: Colours, operands: Neighbours, consumers: Neighbours
) -> SparseRows:
    """Return the matrix (colours after, 3 x colours before) that sums a round's messages."""

    def number(row: np.ndarray, node: np.ndarray) -> np.ndarray:
        return before.numbers[node, after.configs[row]]

    return add_messages(after.nodes, number, len(before.nodes), operands, consumers)


def add_messages(
    nodes: np.ndarray,
    number: Callable[[np.ndarray, np.ndarray], np.ndarray],
    senders: int,
    operands: Neighbours,
    consumers: Neighbours,
) -> SparseRows:
    """Return the matrix (rows, 3 x senders) that sums the messages which `nodes` (rows,) receive:
    one from the node itself, the mean over its operands, and the mean over its consumers. Sender s
    has the columns 3 s (message to itself), 3 s + 1 (to consumers), 3 s + 2 (to operands).

    `number`: a function that returns, given rows (n,) and nodes (n,), the node's sender (n,) there.
    """
    every = np.arange(len(nodes))
    found = [neighbours.spread(nodes) for neighbours in (operands, consumers)]
    counts = [neighbours.counts()[nodes] for neighbours in (operands, consumers)]
    starts = starts_of(1 + counts[0] + counts[1])
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    columns[starts[:-1]], values[starts[:-1]] = 3 * number(every, nodes), 1
    begins = starts[:-1] + 1
    for message, ((row, node), count) in enumerate(zip(found, counts, strict=True), start=1):
        # Position of an entry = first free position of its row + the entry's index in that row.
        entry = np.arange(len(row)) + (begins - offsets(count))[row]
        columns[entry], values[entry] = 3 * number(row, node) + message, 1 / count[row]
        begins = begins + count
    return SparseRows(starts.astype(np.int32), columns, values, 3 * senders)


@dataclass(frozen=True)
class Structure:
    """The arrays of a graph that colour refinement and sums over nodes read."""

    operands: Neighbours
    consumers: Neighbours
    # (configurable,) int64: the nodes whose layouts a configuration chooses
    configurable: np.ndarray
    # (nodes, NUM_SHARES) float32, weights of sums: 1 / nodes, shares of operations and of bytes
    shares: np.ndarray
    constraints: Constraints
    # layouts of each node, and `codes` that choose them; `codes` may be a memory-mapped file
    codebook: Codebook

    @property
    def num_nodes(self) -> int:
        return len(self.shares)

    @property
    def num_pairs(self) -> int:
        return len(self.codebook.layouts)


class Marks(NamedTuple):
    """Features of layout constraints, for the few colours whose tensor is constrained."""

    colours: np.ndarray  # (marked,) int64, ascending: the colours with constraints
    values: np.ndarray  # (marked, extras) float32: features of the constraints on each of `colours`

    def expand(self, count: int) -> np.ndarray:
        """Return features (count, extras) for all `count` colours; 0 for unconstrained colours."""
        every = np.zeros((count, self.values.shape[1]), np.float32)
        every[self.colours] = self.values
        return every


class Round(NamedTuple):
    """Arrays of one round: for each colour after the round, the messages that it sums, and the
    colour that its node had before the round."""

    # (colours after, 3 x colours before): row c has the factors of the messages that colour c sums
    aggregation: SparseRows
    marks: Marks
    # (colours after,) int32: the colour that the same node and configuration had before the round
    parents: np.ndarray


@dataclass(frozen=True)
class ColourPlan:
    """All index arrays that a net needs to compute a batch of graphs. A colour is a distinct value
    of a node over configurations. Nodes and (node, layout) pairs are numbered through all
    graphs."""

    # (colours before the first round,) int64: the node of each of these colours
    nodes: np.ndarray
    # (configured,) int64: the colours before the first round whose nodes are configurable
    configured: np.ndarray
    pairs: np.ndarray  # (configured,) int64: the (node, layout) pair of each colour in `configured`
    rounds: list[Round]
    last: Colours  # distinct node values after the last round


def plan_colours(graphs: Sequence[Structure], configs: np.ndarray, rounds: int) -> ColourPlan:
    """Return the plan for a batch of graphs. Column g of `configs` (configs, graphs) chooses
    configurations of graph g, as rows of its codebook's codes."""
    colours, pairs = _number_pairs(graphs, configs)
    configured = np.flatnonzero(pairs >= 0)
    described, tensor_of = _describe_constraints(graphs, configs)
    operands = Neighbours.join([graph.operands for graph in graphs])
    consumers = Neighbours.join([graph.consumers for graph in graphs])
    blocks, last = [], colours
    for _ in range(rounds):
        after = refine(last, operands, consumers)
        aggregation = aggregate(last, after, operands, consumers)
        known = described[tensor_of[after.nodes], after.configs]
        marked = np.flatnonzero(known.any(axis=1))
        marks = Marks(marked, known[marked].astype(np.float32))
        blocks.append(Round(aggregation, marks, last.at(after)))
        last = after
    return ColourPlan(colours.nodes, configured, pairs[configured], blocks, last)


def _number_pairs(graphs: Sequence[Structure], configs: np.ndarray) -> tuple[Colours, np.ndarray]:
    """Return the colours before the first round, and the (node, layout) pair (colours,) of each; a
    node that is not configurable has one colour, and a negative number instead of a pair."""
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
    """Return features (1 + tensors, configs, extras) uint8 of the constraints on tensors, and the
    index of each node's tensor (nodes,). Nodes without constraints have tensor 0, whose features
    are 0."""
    tensor_of = np.zeros(sum(graph.num_nodes for graph in graphs), np.int64)
    described = [np.zeros((1, len(configs), len(CONFLICTS)), np.uint8)]
    first = 0
    for graph, rows in zip(graphs, configs.T, strict=True):
        tensors = graph.constraints.nodes
        tensor_of[first + tensors] = np.arange(len(tensors)) + sum(map(len, described))
        described.append(graph.constraints.describe(graph.codebook.codes[rows]).transpose(1, 0, 2))
        first += graph.num_nodes
    return np.concatenate(described), tensor_of


def list_shares(graphs: Sequence[Structure]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the nonzero weights of sums over nodes as three arrays (n,): node, row, weight. They
    are sorted by row = graph * NUM_SHARES + index of the sum."""
    shares = np.concatenate([graph.shares for graph in graphs])
    graph_of = np.repeat(np.arange(len(graphs)), [graph.num_nodes for graph in graphs])
    node, share = np.nonzero(shares)
    row = graph_of[node] * NUM_SHARES + share
    order = np.argsort(row, kind="stable")
    return node[order], row[order], shares[node, share][order]


def find_pooling(graphs: Sequence[Structure], colours: Colours) -> SparseRows:
    """Return the matrix of weighted sums over the nodes of each graph, for each configuration.

    Shape ((1 + 2 x configs) x graphs x NUM_SHARES, colours). A node is steady if it has its most
    frequent colour in at least half of the configurations. The first rows are sums over steady
    nodes as if they always had their most frequent colour. The next rows correct these sums, for
    each configuration, at steady nodes with another colour. The last rows are sums over all other
    nodes for each configuration. The total of the three is the sum of a configuration.
    """
    node, row, weights = list_shares(graphs)
    usual = colours.find_most_frequent()
    differs = colours.numbers != usual[:, None]
    num_rows, num_configs = len(graphs) * NUM_SHARES, colours.numbers.shape[1]
    is_steady = (2 * np.count_nonzero(differs, axis=1) <= num_configs)[node]
    others, other_weights = node[~is_steady], weights[~is_steady]
    each = np.tile(np.bincount(row[~is_steady], minlength=num_rows), num_configs)
    node, row, weights = node[is_steady], row[is_steady], weights[is_steady]
    # Corrections: + weight for the other colour, - weight for the most frequent one. np.flatnonzero
    # with divmod takes a third of the time of np.nonzero.
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
