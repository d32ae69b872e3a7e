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

import numpy as np

from solution.domain.dividing import FACTORS, mix
from solution.domain.neighbours import Neighbours, offsets, starts_of
from solution.models.nets.sparse_rows import SparseRows, sum_entries

BLOCK = 1 << 15  # (node, configuration) pairs in one block
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
    places = keys.view(np.int64)  # only the configurations remain
    places += np.arange(0, num_nodes * num_configs, num_configs)[:, None]
    numbers = np.empty(labels.shape, np.int32)
    numbers.ravel()[places.ravel()] = np.cumsum(begins, dtype=np.int32) - np.int32(1)
    return Colours(numbers, *np.divmod(places[begins], num_configs))


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
    own = np.arange(len(nodes))
    found = [neighbours.spread(nodes) for neighbours in (operands, consumers)]
    counts = [neighbours.counts()[nodes] for neighbours in (operands, consumers)]
    starts = starts_of(1 + counts[0] + counts[1])
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    columns[starts[:-1]], values[starts[:-1]] = 3 * number(own, nodes), 1
    begins = starts[:-1] + 1
    for message, ((row, node), count) in enumerate(zip(found, counts, strict=True), start=1):
        # Index of the n-th entry of this kind: its row's start plus its position in the row.
        place = np.arange(len(row)) + (begins - offsets(count))[row]
        columns[place], values[place] = 3 * number(row, node) + message, 1 / count[row]
        begins = begins + count
    return SparseRows(starts.astype(np.int32), columns, values, 3 * senders)
