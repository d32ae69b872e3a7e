"""Compute solution.models.layout.steps with numba, for training, where it runs at every step.

It takes a third of the time. Prediction does not use it, because importing numba takes longer than
a prediction. The colours are the same, numbered in another order.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from solution.domain.dividing import FACTORS, GOLDEN
from solution.domain.neighbours import Neighbours, offsets, starts_of
from solution.features.layout.conflicts import (
    CONSTRAINED,
    FEATURES,
    MINOR_DIFFERS,
    ORDER_DIFFERS,
    UNSET,
)
from solution.models.layout.colour_refinement import (
    FOR_CONSUMERS,
    FOR_OPERANDS,
    Colours,
)
from solution.models.layout.steps import (
    NUM_SHARES,
    Marks,
    Round,
    Steps,
    Structure,
    list_shares,
)
from solution.models.nets.sparse_rows import SparseRows

MIX_FIRST, MIX_SECOND = FACTORS
NUM_MARKS = len(FEATURES)
NOTHING = -1


def derive_steps(graphs: Sequence[Structure], configs: np.ndarray, rounds: int) -> Steps:
    """Return what solution.models.layout.steps.derive_steps does, with colours in another order."""
    operands = Neighbours.join([graph.operands for graph in graphs])
    consumers = Neighbours.join([graph.consumers for graph in graphs])
    edges = (operands.starts, operands.nodes, consumers.starts, consumers.nodes)
    both = zip(graphs, configs.T, strict=True)
    codes = np.concatenate([graph.codebook.codes[rows] for graph, rows in both], axis=1)
    numbers, nodes, pairs = _number_pairs(*_list_pairs(graphs), codes)
    configured, constraints = np.flatnonzero(pairs >= 0), _join_constraints(graphs)
    blocks, before = [], Colours(numbers, nodes, np.empty(0, np.int64))
    for _ in range(rounds):
        after = Colours(*_refine(before.numbers, *edges))
        starts, columns, values = _aggregate(before.numbers, after.nodes, after.configs, *edges)
        aggregation = SparseRows(starts, columns, values, 3 * len(before.nodes))
        marks = Marks(*_mark(after.nodes, after.configs, codes, *constraints))
        blocks.append(Round(aggregation, marks, before.at(after)))
        before = after
    return Steps(nodes, configured, pairs[configured], blocks, before)


def _list_pairs(graphs: Sequence[Structure]) -> tuple[np.ndarray, np.ndarray]:
    """Return the index (nodes,) of each node among the configurable ones, or NOTHING, and the first
    pair of each configurable node, followed by the number of pairs.
    """
    sizes = [graph.num_nodes for graph in graphs]
    configurable = _join([graph.configurable for graph in graphs], sizes)
    places = np.full(sum(sizes), NOTHING)
    places[configurable] = np.arange(len(configurable))
    pairs = [graph.num_pairs for graph in graphs]
    firsts = _join([graph.codebook.starts[:-1] for graph in graphs], pairs)
    return places, np.append(firsts, sum(pairs))


def _join_constraints(graphs: Sequence[Structure]) -> tuple[np.ndarray, ...]:
    """Return the constrained tensor (nodes,) of each node, or NOTHING, and the tensors'
    constraints."""
    own, sizes = [graph.constraints for graph in graphs], [graph.num_nodes for graph in graphs]
    held, counts = _join([one.nodes for one in own], sizes), [len(one.offsets) for one in own]
    tensors = np.full(sum(sizes), NOTHING)
    tensors[held] = np.arange(len(held))
    return (
        tensors,
        np.append(_join([one.starts for one in own], counts), sum(counts)),
        _join([one.configurable for one in own], [len(graph.configurable) for graph in graphs]),
        _join([one.offsets for one in own], [len(one.minor) for one in own]),
        np.concatenate([one.minor for one in own]),
        np.concatenate([one.order for one in own]),
    )


def _join(parts: Sequence[np.ndarray], sizes: Sequence[int]) -> np.ndarray:
    """Concatenate the indices of several graphs, shifted by the sizes of the graphs before."""
    return np.concatenate([part + first for part, first in zip(parts, offsets(sizes), strict=True)])


@njit(cache=True, nogil=True)
def _number_pairs(places, firsts, codes):
    """Return the colours before the first round: numbers, nodes, and (node, layout) pairs."""
    num_nodes, num_configs = len(places), len(codes)
    numbers = np.empty((num_nodes, num_configs), np.int32)
    most = num_nodes + firsts[-1]
    nodes, pairs = np.empty(most, np.int64), np.full(most, NOTHING, np.int64)
    found = np.full(firsts[-1], NOTHING, np.int32)  # the colour of a pair
    count = 0
    for node in range(num_nodes):
        place = places[node]
        if place == NOTHING:
            numbers[node], nodes[count] = count, node
            count += 1
            continue
        for config in range(num_configs):
            pair = firsts[place] + codes[config, place]
            if found[pair] == NOTHING:
                found[pair], nodes[count], pairs[count] = count, node, pair
                count += 1
            numbers[node, config] = found[pair]
    return numbers, nodes[:count].copy(), pairs[:count].copy()


@njit(cache=True, nogil=True)
def _mark(nodes, configs, codes, tensors, starts, configurable, firsts, minors, orders):
    """Compute solution.features.layout.conflicts.Constraints.describe for colours.

    Returns which colours have constraints, and their features.

    Args:
        nodes, configs: (colours,) node and configuration of each.
        tensors: (nodes,) the tensor that a node computes, or NOTHING.
        starts: (tensors + 1,) into the constraints, which are the arguments after it.
    """
    marked, marks = np.empty(len(nodes), np.int64), np.zeros((len(nodes), NUM_MARKS), np.float32)
    count = 0
    for colour, node in enumerate(nodes):
        tensor = tensors[node]
        if tensor == NOTHING:
            continue
        minor = order = UNSET
        for place in range(starts[tensor], starts[tensor + 1]):
            entry = firsts[place] + codes[configs[colour], configurable[place]]
            if minors[entry] == UNSET:
                continue
            if minor == UNSET:
                minor, order = minors[entry], orders[entry]
                marks[count, CONSTRAINED] = 1
            if minors[entry] != minor:
                marks[count, MINOR_DIFFERS] = 1
            if orders[entry] != order:
                marks[count, ORDER_DIFFERS] = 1
        if minor != UNSET:
            marked[count] = colour
            count += 1
    return marked[:count].copy(), marks[:count].copy()


@njit(cache=True, nogil=True)
def _mix(value):
    """Compute solution.domain.dividing.mix of one value."""
    value += GOLDEN
    value = (value ^ (value >> np.uint64(30))) * MIX_FIRST
    value = (value ^ (value >> np.uint64(27))) * MIX_SECOND
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True)
def _refine(numbers, operand_starts, operands, consumer_starts, consumers):
    """Return the colours after one more round: numbers, and a node and a configuration of each.

    The colours of a node are looked up in a hash table, which is reset for each node.
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
    begun = np.full(1 << bits, -1, np.int64)  # the node that last used a slot
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
    """Compute solution.models.layout.colour_refinement.aggregate: starts, columns and values."""
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


def find_pooling(graphs: Sequence[Structure], colours: Colours) -> SparseRows:
    """Compute solution.models.layout.steps.find_pooling."""
    entries = list_shares(graphs)
    num_rows = len(graphs) * NUM_SHARES
    sizes, columns, values = _add_up(colours.numbers, len(colours.nodes), *entries, num_rows)
    return SparseRows(starts_of(sizes).astype(np.int32), columns, values, len(colours.nodes))


@njit(cache=True, nogil=True)
def _add_up(numbers, num_colours, nodes, rows, weights, num_rows):
    """Return columns and values of each row, for `nodes` (n,) in ascending `rows` (n,)."""
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
    """Return each node's most frequent colour (nodes,), and if at least half of all have it
    (nodes,)."""
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
