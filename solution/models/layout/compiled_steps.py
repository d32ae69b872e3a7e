"""What solution.models.layout.steps counts and sorts, compiled: for nets that learn, step by step.

It takes half the time. Whoever only ranks with a trained net does without: numba takes longer to
import than such a net to answer. The colours are the same ones, numbered in another order.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from solution.domain.ragged import starts_of
from solution.models.layout import steps
from solution.models.layout.colour_refinement import Colours, Neighbours
from solution.models.layout.steps import NUM_SHARES, Steps, Structure
from solution.models.nets.sparse_rows import SparseRows, select

FOR_OPERANDS, FOR_CONSUMERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # odd


def derive_steps(graphs: Sequence[Structure], configs: np.ndarray, rounds: int) -> Steps:
    """The same as solution.models.layout.steps.derive_steps, but for the order of the colours."""
    colours, pairs = steps.number_pairs(graphs, configs)
    configured = np.flatnonzero(pairs >= 0)
    described, places = steps.describe_constraints(graphs, configs)
    operands = Neighbours.join([graph.operands for graph in graphs])
    consumers = Neighbours.join([graph.consumers for graph in graphs])
    edges = (operands.starts, operands.nodes, consumers.starts, consumers.nodes)
    blocks, last = [], colours
    for _ in range(rounds):
        after = Colours(*_refine(last.numbers, *edges))
        starts, columns, values = _aggregate(last.numbers, after.nodes, after.configs, *edges)
        aggregation = SparseRows(starts, columns, values, 3 * len(last.nodes))
        extra = described[places[after.nodes], after.configs].astype(np.float32)
        parents = select(last.at(after), len(last.nodes))
        blocks.append((aggregation, extra, parents))
        last = after
    return Steps(colours.nodes, configured, pairs[configured], blocks, _pool(graphs, last))


@njit(cache=True, nogil=True)
def _mix(value):
    """As solution.models.layout.colour_refinement.mix."""
    value += np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True)
def _refine(numbers, operand_starts, operands, consumer_starts, consumers):
    """The colours after one more round: their numbers, and of each its node and a configuration.

    A node's colours are found in a table of hashes, which each node begins anew.
    """
    num_nodes, num_configs = numbers.shape
    mixed = np.empty((num_nodes, num_configs), np.uint64)
    for node in range(num_nodes):
        for config in range(num_configs):
            mixed[node, config] = _mix(np.uint64(numbers[node, config]))
    after = np.empty((num_nodes, num_configs), np.int32)
    nodes = np.empty(num_nodes * num_configs, np.int64)
    configs = np.empty(num_nodes * num_configs, np.int64)
    bits = 2
    while (1 << bits) < 2 * num_configs:
        bits += 1
    last_slot = (1 << bits) - 1
    keys, found = np.empty(1 << bits, np.uint64), np.empty(1 << bits, np.int32)
    begun = np.full(1 << bits, -1, np.int64)  # the node that a slot was last used for
    labels = np.empty(num_configs, np.uint64)
    count = 0
    for node in range(num_nodes):
        labels[:] = mixed[node]
        for place in range(operand_starts[node], operand_starts[node + 1]):
            for config in range(num_configs):
                labels[config] += FOR_OPERANDS * mixed[operands[place], config]
        for place in range(consumer_starts[node], consumer_starts[node + 1]):
            for config in range(num_configs):
                labels[config] += FOR_CONSUMERS * mixed[consumers[place], config]
        for config in range(num_configs):
            label = labels[config]
            slot = np.int64(label & np.uint64(last_slot))
            while begun[slot] == node and keys[slot] != label:
                slot = (slot + 1) & last_slot
            if begun[slot] != node:
                begun[slot], keys[slot], found[slot] = node, label, count
                nodes[count], configs[count] = node, config
                count += 1
            after[node, config] = found[slot]
    return after, nodes[:count].copy(), configs[:count].copy()


@njit(cache=True, nogil=True)
def _aggregate(before, nodes, configs, operand_starts, operands, consumer_starts, consumers):
    """As solution.models.layout.colour_refinement.aggregate: starts, columns and values."""
    starts = np.zeros(len(nodes) + 1, np.int32)
    for row, node in enumerate(nodes):
        count = operand_starts[node + 1] - operand_starts[node]
        count += consumer_starts[node + 1] - consumer_starts[node]
        starts[row + 1] = starts[row] + 1 + count
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    place = 0
    for row, node in enumerate(nodes):
        config = configs[row]
        columns[place], values[place] = 3 * before[node, config], 1
        place += 1
        begin, end = operand_starts[node], operand_starts[node + 1]
        for other in operands[begin:end]:
            columns[place], values[place] = 3 * before[other, config] + 1, 1 / (end - begin)
            place += 1
        begin, end = consumer_starts[node], consumer_starts[node + 1]
        for other in consumers[begin:end]:
            columns[place], values[place] = 3 * before[other, config] + 2, 1 / (end - begin)
            place += 1
    return starts, columns, values


def _pool(graphs: Sequence[Structure], colours: Colours) -> SparseRows:
    """As solution.models.layout.steps.pool."""
    entries = steps.list_shares(graphs)
    num_rows = len(graphs) * NUM_SHARES
    sizes, columns, values = _add_up(colours.numbers, len(colours.nodes), *entries, num_rows)
    return SparseRows(starts_of(sizes).astype(np.int32), columns, values, len(colours.nodes))


@njit(cache=True, nogil=True)
def _add_up(numbers, num_colours, nodes, rows, weights, num_rows):
    """The entries of each row, columns and values; of nodes (n,) in ascending rows (n,)."""
    num_configs = numbers.shape[1]
    usual, is_steady = _find_usual(numbers, num_colours)
    steady, others = np.flatnonzero(is_steady[nodes]), np.flatnonzero(~is_steady[nodes])
    sizes = np.zeros((1 + 2 * num_configs, num_rows), np.int64)
    for place in steady:
        node, row = nodes[place], rows[place]
        sizes[0, row] += 1
        for config in range(num_configs):
            sizes[1 + config, row] += 2 * (numbers[node, config] != usual[node])
    for place in others:
        sizes[-1, rows[place]] += 1
    sizes[1 + num_configs :] = sizes[-1]
    columns, values = np.empty(sizes.sum(), np.int32), np.empty(sizes.sum(), np.float32)
    by_config = numbers.T.copy()
    end = len(steady)
    columns[:end], values[:end] = usual[nodes[steady]], weights[steady]
    for config in range(num_configs):
        for place in steady:
            node = nodes[place]
            if by_config[config, node] != usual[node]:
                columns[end], values[end] = by_config[config, node], weights[place]
                columns[end + 1], values[end + 1] = usual[node], -weights[place]
                end += 2
    for config in range(num_configs):
        for place in others:
            columns[end], values[end] = by_config[config, nodes[place]], weights[place]
            end += 1
    return sizes.ravel(), columns, values


@njit(cache=True, nogil=True)
def _find_usual(numbers, num_colours):
    """The most frequent colour (nodes,) of each node, and whether half of all have it (nodes,)."""
    num_nodes, num_configs = numbers.shape
    frequency = np.zeros(num_colours, np.int64)
    usual = np.empty(num_nodes, np.int32)
    is_steady = np.empty(num_nodes, np.bool_)
    for node in range(num_nodes):
        for number in numbers[node]:
            frequency[number] += 1
        usual[node] = numbers[node, 0]
        for number in numbers[node]:
            if frequency[number] > frequency[usual[node]]:
                usual[node] = number
        is_steady[node] = 2 * frequency[usual[node]] >= num_configs
    return usual, is_steady
