"""Which nodes of which configurations a graph net cannot tell apart: they are computed once.

After k rounds of message passing a node knows the layouts of its neighbourhood of k hops and
nothing else. In two configurations that agree there it has the same colour, and candidates of a
search agree in most places: of 48 sampled ones the nodes have 2 to 11 times fewer colours after one
round. So a net works on colours instead of on (configuration, node) pairs, which changes its
results by nothing but rounding.

    configurations ──▶ colours 0 ──round──▶ colours 1 ──round──▶ colours 2 ──▶ sums over nodes
                       node, layout         1 hop                2 hops

Source: colour refinement (Weisfeiler and Leman, 1968), as used to compare what graph nets can see
(Xu et al., "How powerful are graph neural networks?", 2019).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from solution.domain.mixing import FACTORS, mix
from solution.domain.neighbours import Neighbours
from solution.domain.ragged import offsets, starts_of
from solution.models.nets.sparse_rows import SparseRows, sum_entries

BLOCK = 1 << 15  # (node, configuration) pairs
FOR_OPERANDS, FOR_CONSUMERS = FACTORS  # of their hashes; odd


@dataclass(frozen=True)
class Colours:
    """The distinct colours of the nodes after some rounds.

    No two nodes have one in common, and those of a node are numbered one after the other.
    """

    numbers: np.ndarray  # (nodes, configs) int32, 0 ... colours - 1
    nodes: np.ndarray  # (colours,) int64 the node that has each
    configs: np.ndarray  # (colours,) int64 one of the configurations in which it has it

    @classmethod
    def join(cls, parts: Sequence["Colours"]) -> "Colours":
        """Those of nodes that follow each other, numbered on."""
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
        """Our numbers (others,) of the nodes in the configurations of `others`."""
        return self.numbers[others.nodes, others.configs]

    def find_most_frequent(self) -> np.ndarray:
        """The number (nodes,) that each node has in most configurations."""
        frequency = np.bincount(self.numbers.ravel(), minlength=len(self.nodes))
        order = np.argsort(frequency, kind="stable")
        usual = np.empty(len(self.numbers), np.int32)
        usual[self.nodes[order]] = order  # of a node's the last to be written stays
        return usual


def number_small(labels: np.ndarray, count: int) -> Colours:
    """As number_colours, of labels 0 ... count - 1 of which no two nodes have one in common.

    Nothing has to be sorted.
    """
    flat = labels.ravel()
    first = np.full(count, len(flat))
    first[flat[::-1]] = np.arange(len(flat))[::-1]  # of equal ones the last to be written stays
    is_there = first < len(flat)
    numbers = (np.cumsum(is_there, dtype=np.int32) - np.int32(1))[labels]
    nodes, configs = np.divmod(first[is_there], labels.shape[1])
    return Colours(numbers, nodes, configs)


def number_colours(labels: np.ndarray) -> Colours:
    """Number the distinct `labels` (nodes, configs) uint64 of each node.

    The upper bits of a label, as many as it takes to number configurations, do not count.
    """
    num_nodes, num_configs = labels.shape
    # Label and configuration are one number: then short rows are sorted, and need not say what came
    # from where, which takes a twentieth of sorting the places of all labels at once.
    bits = np.uint64((num_configs - 1).bit_length())
    keys = labels << bits
    keys |= np.arange(num_configs, dtype=np.uint64)
    keys.sort(axis=1)
    begins = np.ones(labels.shape, bool)
    ordered = keys >> bits
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=begins[:, 1:])
    keys &= (np.uint64(1) << bits) - np.uint64(1)
    places = keys.view(np.int64)  # now only the configurations
    places += np.arange(0, num_nodes * num_configs, num_configs)[:, None]
    numbers = np.empty(labels.shape, np.int32)
    numbers.ravel()[places.ravel()] = np.cumsum(begins, dtype=np.int32) - np.int32(1)
    return Colours(numbers, *np.divmod(places[begins], num_configs))


def refine(colours: Colours, operands: Neighbours, consumers: Neighbours) -> Colours:
    """The colours after one more round."""
    mixed = mix(colours.numbers.astype(np.uint64))
    num_nodes, num_configs = mixed.shape
    step = max(1, BLOCK // num_configs)
    parts = []
    # Some nodes at a time, so that what comes between stays in the processor's cache.
    for begin in range(0, num_nodes, step):
        part = slice(begin, begin + step)
        labels = _add_neighbours(mixed, part, operands, consumers)
        parts.append(number_colours(labels))
    return Colours.join(parts)


def mix_neighbours(keys: np.ndarray, operands: Neighbours, consumers: Neighbours) -> np.ndarray:
    """A hash of each key (nodes, k) uint64 together with those of the node's neighbours."""
    return _add_neighbours(mix(keys), slice(0, len(keys)), operands, consumers)


def _add_neighbours(
    mixed: np.ndarray, part: slice, operands: Neighbours, consumers: Neighbours
) -> np.ndarray:
    """A hash of some nodes and their neighbours, made of hashes of all nodes (nodes, k) uint64."""
    # Odd factors tell what a node is from what it reads and from what reads it.
    labels = sum_entries(*operands.cut(part), mixed) * FOR_OPERANDS
    labels += sum_entries(*consumers.cut(part), mixed) * FOR_CONSUMERS
    labels += mixed[part]
    return labels


def aggregate(
    before: Colours, after: Colours, operands: Neighbours, consumers: Neighbours
) -> SparseRows:
    """Which messages each colour adds up in a round: (colours after, 3 x colours before)."""

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
    """Which messages each of `nodes` (rows,) adds up in a round: (rows, 3 x senders).

    A sender has three messages, which are columns beside each other: to itself, to its consumers,
    to its operands. A row adds the first of what its node was, the mean of the second over the
    node's operands and the mean of the third over its consumers.

    Args:
        number: rows (n,) and nodes (n,) -> which sender (n,) the node was in what the row is of.
    """
    own = np.arange(len(nodes))
    found = [neighbours.spread(nodes) for neighbours in (operands, consumers)]
    counts = [neighbours.counts()[nodes] for neighbours in (operands, consumers)]
    starts = starts_of(1 + counts[0] + counts[1])
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    columns[starts[:-1]], values[starts[:-1]] = 3 * number(own, nodes), 1
    begins = starts[:-1] + 1
    for message, ((row, node), count) in enumerate(zip(found, counts, strict=True), start=1):
        # The n-th of all entries of this kind is so many places behind the first of its row.
        place = np.arange(len(row)) + (begins - offsets(count))[row]
        columns[place], values[place] = 3 * number(row, node) + message, 1 / count[row]
        begins = begins + count
    return SparseRows(starts.astype(np.int32), columns, values, 3 * senders)
