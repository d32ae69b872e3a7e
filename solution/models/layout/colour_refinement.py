"""Find the (node, configuration) pairs that a graph net cannot tell apart, to compute each once.

After k rounds of message passing a node's value depends on the layouts within k hops and on nothing
else. In two configurations that agree there the node has the same *colour*. Candidates of a search
agree in most layouts: among 48 sampled ones a node has 2 to 11 times fewer colours after one round.
So the net works on colours instead of on (configuration, node) pairs. Its results change by
rounding only.

    configurations ──▶ colours 0 ──round──▶ colours 1 ──round──▶ colours 2 ──▶ sums over nodes
                       node, layout         1 hop                2 hops

Source: colour refinement (Weisfeiler and Leman, 1968), as used to compare what graph nets can see
(Xu et al., "How powerful are graph neural networks?", 2019).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solution.domain.codebook import Codebook
from solution.domain.dividing import FACTORS, mix
from solution.domain.neighbours import Neighbours, offsets, starts_of
from solution.features.layout import conflicts
from solution.features.layout.conflicts import Constraints
from solution.models.nets.sparse_rows import SparseRows, sum_entries

BLOCK = 1 << 15  # (node, configuration) pairs in one block
NUM_SHARES = 5
FOR_OPERANDS, FOR_CONSUMERS = FACTORS  # odd multipliers of operands' and consumers' hashes


@dataclass(frozen=True)
class Colours:
    """The distinct colours of the nodes after some rounds.

    Nodes share no colours, and the colours of a node have consecutive numbers.
    """

    numbers: np.ndarray  # (nodes, configs) int32, from 0 to colours - 1
    nodes: np.ndarray  # (colours,) int64, the node of each colour
    configs: np.ndarray  # (colours,) int64, a configuration in which the node has the colour

    @classmethod
    def join(cls, parts: Sequence["Colours"]) -> "Colours":
        """Join the colours of consecutive ranges of nodes, numbering them consecutively."""
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
        """Return the numbers here (others,) of the node and configuration of each colour of
        `others`."""
        return self.numbers[others.nodes, others.configs]

    def find_most_frequent(self) -> np.ndarray:
        """Return each node's most frequent colour (nodes,)."""
        frequency = np.bincount(self.numbers.ravel(), minlength=len(self.nodes))
        order = np.argsort(frequency, kind="stable")
        usual = np.empty(len(self.numbers), np.int32)
        usual[self.nodes[order]] = order  # the last assignment to a node wins
        return usual


def number_small(labels: np.ndarray, count: int) -> Colours:
    """Number colours as number_colours does, for labels 0 to count - 1 that no two nodes share.

    Nothing needs to be sorted.
    """
    flat = labels.ravel()
    first = np.full(count, len(flat))
    # of equal labels the first one is written last and stays
    first[flat[::-1]] = np.arange(len(flat))[::-1]
    is_there = first < len(flat)
    numbers = (np.cumsum(is_there, dtype=np.int32) - np.int32(1))[labels]
    nodes, configs = np.divmod(first[is_there], labels.shape[1])
    return Colours(numbers, nodes, configs)


def number_colours(labels: np.ndarray) -> Colours:
    """Number the distinct `labels` (nodes, configs) uint64 of each node.

    The upper bits of a label are ignored, as many as the index of a configuration needs.
    """
    num_nodes, num_configs = labels.shape
    # Pack label and configuration into one number. Sorting then keeps them together, row by row, in
    # a twentieth of the time of an argsort over all labels.
    bits = np.uint64((num_configs - 1).bit_length())
    keys = labels << bits
    keys |= np.arange(num_configs, dtype=np.uint64)
    keys.sort(axis=1)
    begins = np.ones(labels.shape, bool)
    ordered = keys >> bits
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=begins[:, 1:])
    keys &= (np.uint64(1) << bits) - np.uint64(1)
    entries = keys.view(np.int64)  # only the configurations remain
    entries += np.arange(0, num_nodes * num_configs, num_configs)[:, None]
    numbers = np.empty(labels.shape, np.int32)
    numbers.ravel()[entries.ravel()] = np.cumsum(begins, dtype=np.int32) - np.int32(1)
    return Colours(numbers, *np.divmod(entries[begins], num_configs))


def refine(colours: Colours, operands: Neighbours, consumers: Neighbours) -> Colours:
    """Return the colours after one more round."""
    mixed = mix(colours.numbers.astype(np.uint64))
    num_nodes, num_configs = mixed.shape
    step = max(1, BLOCK // num_configs)
    parts = []
    # A block of nodes at a time, so that intermediate arrays stay in the processor's cache.
    for begin in range(0, num_nodes, step):
        part = slice(begin, begin + step)
        labels = _add_neighbours(mixed, part, operands, consumers)
        parts.append(number_colours(labels))
    return Colours.join(parts)


def mix_neighbours(keys: np.ndarray, operands: Neighbours, consumers: Neighbours) -> np.ndarray:
    """Return a hash of each key (nodes, k) uint64 and of the keys of the node's neighbours."""
    return _add_neighbours(mix(keys), slice(0, len(keys)), operands, consumers)


def _add_neighbours(
    mixed: np.ndarray, part: slice, operands: Neighbours, consumers: Neighbours
) -> np.ndarray:
    """Hash some nodes with their neighbours, from the hashes of all nodes (nodes, k) uint64."""
    # Different odd factors distinguish the node, its operands and its consumers.
    labels = sum_entries(*operands.cut(part), mixed) * FOR_OPERANDS
    labels += sum_entries(*consumers.cut(part), mixed) * FOR_CONSUMERS
    labels += mixed[part]
    return labels


def aggregate(
    before: Colours, after: Colours, operands: Neighbours, consumers: Neighbours
) -> SparseRows:
    """Return the messages that each colour sums in a round: (colours after, 3 x colours before)."""

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
    """Return the messages that each of `nodes` (rows,) sums in a round: (rows, 3 x senders).

    A sender has three messages, in adjacent columns: to itself, to its consumers, to its operands.
    A row sums the node's message to itself, the mean over the node's operands of the second, and
    the mean over its consumers of the third.

    Args:
        number: rows (n,) and nodes (n,) -> the sender (n,) that the node is in that row.
    """
    every = np.arange(len(nodes))
    found = [neighbours.spread(nodes) for neighbours in (operands, consumers)]
    counts = [neighbours.counts()[nodes] for neighbours in (operands, consumers)]
    starts = starts_of(1 + counts[0] + counts[1])
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    columns[starts[:-1]], values[starts[:-1]] = 3 * number(every, nodes), 1
    begins = starts[:-1] + 1
    for message, ((row, node), count) in enumerate(zip(found, counts, strict=True), start=1):
        # Index of the n-th entry of this kind: its row's start plus its position in the row.
        entry = np.arange(len(row)) + (begins - offsets(count))[row]
        columns[entry], values[entry] = 3 * number(row, node) + message, 1 / count[row]
        begins = begins + count
    return SparseRows(starts.astype(np.int32), columns, values, 3 * senders)


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
class ColourPlan:
    """The rounds of a batch; nodes and (node, layout) pairs of its graphs are numbered
    consecutively."""

    nodes: np.ndarray  # (colours 0,) int64, the node of each
    configured: np.ndarray  # (configured,) int64, the colours 0 that have a layout
    pairs: np.ndarray  # (configured,) int64, their (node, layout) pairs
    rounds: list[Round]
    last: Colours  # after the last round


def plan_colours(graphs: Sequence[Structure], configs: np.ndarray, rounds: int) -> ColourPlan:
    """Return the plan for `configs` (configs, graphs), rows of each graph's codes."""
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
    tensor_of = np.zeros(sum(graph.num_nodes for graph in graphs), np.int64)
    described = [np.zeros((1, len(configs), len(conflicts.FEATURES)), np.uint8)]
    first = 0
    for graph, rows in zip(graphs, configs.T, strict=True):
        tensors = graph.constraints.nodes
        tensor_of[first + tensors] = np.arange(len(tensors)) + sum(map(len, described))
        described.append(graph.constraints.describe(graph.codebook.codes[rows]).transpose(1, 0, 2))
        first += graph.num_nodes
    return np.concatenate(described), tensor_of


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
