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

from solution.domain.ragged import offsets, starts_of
from solution.models.nets.sparse_rows import SparseRows, sum_entries

_MULTIPLIERS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Neighbours:
    """The operands or the consumers of each node v: nodes[starts[v] : starts[v + 1]]."""

    starts: np.ndarray  # (nodes + 1,) int64
    nodes: np.ndarray  # (edges,) int64

    @classmethod
    def of(cls, targets: np.ndarray, sources: np.ndarray, num_nodes: int) -> "Neighbours":
        """The sources (edges,) of each target (edges,)."""
        order = np.argsort(targets, kind="stable")
        return cls(starts_of(np.bincount(targets, minlength=num_nodes)), sources[order])

    @classmethod
    def join(cls, parts: Sequence["Neighbours"]) -> "Neighbours":
        """Those of several graphs that become one, its nodes numbered on."""
        if len(parts) == 1:
            return parts[0]
        sizes, edges = [len(part.starts) - 1 for part in parts], [len(part.nodes) for part in parts]
        starts = [p.starts[:-1] + first for p, first in zip(parts, offsets(edges), strict=True)]
        nodes = [part.nodes + first for part, first in zip(parts, offsets(sizes), strict=True)]
        return cls(np.concatenate([*starts, [sum(edges)]]), np.concatenate(nodes))

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sums over each node's neighbours (nodes, k) of `values` (nodes, k) uint64 modulo 2^64."""
        return sum_entries(self.starts, self.nodes, values)

    def spread(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All neighbours of `nodes` (rows,): the row (n,), the neighbour (n,), 1 / theirs (n,)."""
        first, count = self.starts[nodes], np.diff(self.starts)[nodes]
        row = np.repeat(np.arange(len(nodes)), count)
        inside = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        return row, self.nodes[first[row] + inside], 1 / count[row]


@dataclass(frozen=True)
class Colours:
    """The distinct colours of the nodes after some rounds; no two nodes have one in common."""

    numbers: np.ndarray  # (nodes, configs) int64, 0 ... colours - 1
    nodes: np.ndarray  # (colours,) int64 the node that has each
    configs: np.ndarray  # (colours,) int64 one of the configurations in which it has it

    def at(self, others: "Colours") -> np.ndarray:
        """Our numbers (others,) of the nodes in the configurations of `others`."""
        return self.numbers[others.nodes, others.configs]


def number_small(labels: np.ndarray, count: int) -> Colours:
    """As number_colours, of labels 0 ... count - 1: nothing has to be sorted."""
    flat = labels.ravel()
    first = np.full(count, len(flat))
    first[flat[::-1]] = np.arange(len(flat))[::-1]  # of equal ones the last to be written stays
    is_there = first < len(flat)
    numbers = (np.cumsum(is_there) - 1)[labels]
    nodes, configs = np.divmod(first[is_there], labels.shape[1])
    return Colours(numbers, nodes, configs)


def number_colours(labels: np.ndarray) -> Colours:
    """Number the distinct `labels` (nodes, configs); those of two nodes must never be equal."""
    # As np.unique does with return_index and return_inverse, which for the first of equal labels
    # sorts stably: half as fast as sorting anyhow and looking for the least place of each.
    flat = labels.ravel()
    order = np.argsort(flat)
    ordered = flat[order]
    begins = np.append(True, ordered[1:] != ordered[:-1])
    numbers = np.empty(labels.shape, np.int64)
    numbers.ravel()[order] = np.cumsum(begins) - 1
    first = np.minimum.reduceat(order, np.flatnonzero(begins))
    nodes, configs = np.divmod(first, labels.shape[1])
    return Colours(numbers, nodes, configs)


def refine(colours: Colours, operands: Neighbours, consumers: Neighbours) -> Colours:
    """The colours after one more round."""
    return number_colours(mix_neighbours(colours.numbers.astype(np.uint64), operands, consumers))


def mix_neighbours(colours: np.ndarray, operands: Neighbours, consumers: Neighbours) -> np.ndarray:
    """A hash of each colour (nodes, k) uint64 together with those of the neighbours."""
    messages = operands.sums(mix(colours, 1)) + mix(consumers.sums(mix(colours, 2)), 3)
    return mix(mix(colours, 4) + messages, 5)


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
    rows, columns, weights = [own], [3 * number(own, nodes)], [np.ones(len(nodes))]
    for message, neighbours in enumerate((operands, consumers), start=1):
        row, node, weight = neighbours.spread(nodes)
        rows.append(row)
        columns.append(3 * number(row, node) + message)
        weights.append(weight)
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")
    return SparseRows(
        starts=starts_of(np.bincount(row, minlength=len(nodes))),
        columns=np.concatenate(columns)[order],
        values=np.concatenate(weights).astype(np.float32)[order],
        num_columns=3 * senders,
    )


def mix(values: np.ndarray, salt: int = 0) -> np.ndarray:
    """A hash of each of `values` uint64 that scatters over 64 bits.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    mixed = values + np.uint64((salt + 1) * _GOLDEN % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MULTIPLIERS[0]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MULTIPLIERS[1]
    return mixed ^ (mixed >> np.uint64(31))
