"""Compute the layout net's colours and rounds on a CPU with numba, called from torch.

A *colour* numbers the distinct values that a node of the net takes over configurations
(solution.models.layout.colour_refinement); a *round* is one round of message passing between nodes.
NOTHING (-1) in an index array stands for "no such entry".

The first half of the file numbers the colours as colour_refinement does, in another order. The
second half computes a round, one colour at a time from messages to values. Torch
(solution.models.layout.layout_gnn.DeviceRound) passes over all colours once for each operation
(sum, norm, GELU, selection). Here one colour is finished before the next one starts, so that
intermediate values stay in the processor's cache. The values agree up to rounding.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from solution.domain.codebook import FACTORS, GOLDEN
from solution.domain.neighbours import Neighbours, offsets
from solution.features.layout.tensors import (
    CONFLICTS,
    CONSTRAINED,
    MINOR_DIFFERS,
    ORDER_DIFFERS,
    UNSET,
)
from solution.models.layout.colour_refinement import (
    FOR_CONSUMERS,
    FOR_OPERANDS,
    ColourPlan,
    Colours,
    Marks,
    Round,
    Structure,
)
from solution.models.nets.forward import SparseRows

MIX_FIRST, MIX_SECOND = FACTORS
NUM_MARKS = len(CONFLICTS)
NOTHING = -1
FLOAT = np.float32
ROOT_HALF, DENSITY_AT_ZERO = FLOAT(np.sqrt(0.5)), FLOAT(1 / np.sqrt(2 * np.pi))
# in float32, erf(x) is 1 for x above this
MOST_ERF = FLOAT(4)
# _density computes exp(-y), y at most MOST_EXPONENT, as exp(-y / PARTS) to the power of PARTS
MOST_EXPONENT, PARTS = FLOAT(32), FLOAT(64)
# "reassoc" lets the compiler reorder sums, so that it can vectorise them; NaN stays NaN. Loops of
# constant length would be unrolled instead, so the length of a row is a variable. Loops that sum
# into a number write no other array than they read: see the comment in _hand_back.
FAST: dict[str, Any] = {
    "nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"reassoc", "contract"}
}  # fmt: skip


def plan_colours(graphs: Sequence[Structure], configs: np.ndarray, rounds: int) -> ColourPlan:
    """Return the plan of colour_refinement.plan_colours, with colours (distinct values of nodes) in
    another order."""
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
    return ColourPlan(nodes, configured, pairs[configured], blocks, before)


def _list_pairs(graphs: Sequence[Structure]) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays: the index of each node among configurable nodes, or NOTHING (nodes,); and
    the first (node, layout) pair of each configurable node, followed by the number of pairs
    (configurable + 1,)."""
    sizes = [graph.num_nodes for graph in graphs]
    configurable = _join([graph.configurable for graph in graphs], sizes)
    positions = np.full(sum(sizes), NOTHING)
    positions[configurable] = np.arange(len(configurable))
    pairs = [graph.num_pairs for graph in graphs]
    firsts = _join([graph.codebook.starts[:-1] for graph in graphs], pairs)
    return positions, np.append(firsts, sum(pairs))


def _join_constraints(graphs: Sequence[Structure]) -> tuple[np.ndarray, ...]:
    """Return the layout constraints of all graphs: the last six arguments of _mark."""
    constraints, sizes = (
        [graph.constraints for graph in graphs],
        [graph.num_nodes for graph in graphs],
    )
    held, counts = (
        _join([one.nodes for one in constraints], sizes),
        [len(one.offsets) for one in constraints],
    )
    tensors = np.full(sum(sizes), NOTHING)
    tensors[held] = np.arange(len(held))
    return (
        tensors,
        np.append(_join([one.starts for one in constraints], counts), sum(counts)),
        _join(
            [one.configurable for one in constraints], [len(graph.configurable) for graph in graphs]
        ),
        _join([one.offsets for one in constraints], [len(one.minor) for one in constraints]),
        np.concatenate([one.minor for one in constraints]),
        np.concatenate([one.order for one in constraints]),
    )


def _join(parts: Sequence[np.ndarray], sizes: Sequence[int]) -> np.ndarray:
    """Concatenate index arrays of graphs; add to each array the `sizes` of the graphs before it."""
    return np.concatenate([part + first for part, first in zip(parts, offsets(sizes), strict=True)])


@njit(cache=True, nogil=True)
def _number_pairs(positions, firsts, codes):
    """Return the colours (numbers of distinct node values) before the first round: the colour of
    each node in each configuration (nodes, configs); the node of each colour (colours,); and the
    (node, layout) pair of each colour (colours,), NOTHING if the node is not configurable.
    `positions`, `firsts`: the results of _list_pairs; `codes`: as in _mark."""
    num_nodes, num_configs = len(positions), len(codes)
    numbers = np.empty((num_nodes, num_configs), np.int32)
    most = num_nodes + firsts[-1]
    nodes, pairs = np.empty(most, np.int64), np.full(most, NOTHING, np.int64)
    found = np.full(firsts[-1], NOTHING, np.int32)  # the colour of each (node, layout) pair
    count = 0
    for node in range(num_nodes):
        position = positions[node]
        if position == NOTHING:
            numbers[node], nodes[count] = count, node
            count += 1
            continue
        for config in range(num_configs):
            pair = firsts[position] + codes[config, position]
            if found[pair] == NOTHING:
                found[pair], nodes[count], pairs[count] = count, node, pair
                count += 1
            numbers[node, config] = found[pair]
    return numbers, nodes[:count].copy(), pairs[:count].copy()


@njit(cache=True, nogil=True)
def _mark(nodes, configs, codes, tensors, starts, configurable, firsts, minors, orders):
    """Describe the layout constraints on each colour's tensor, as Constraints.describe does in
    solution.features.layout.tensors. A colour is one of a node's distinct values.

    Returns two arrays: the colours (marked,) whose tensor has constraints, and their features
    (marked, NUM_MARKS) float32.

    Args:
        nodes, configs: (colours,) the node and a configuration of each colour.
        codes: (configs, configurable) number of each node's layout among the node's layouts.
        tensors: (nodes,) index of the constrained tensor that a node computes, or NOTHING.
        starts: (tensors + 1,) tensor t has the constraints starts[t] : starts[t + 1].
        configurable: (constraints,) the configurable node whose layout decides the constraint.
        firsts: (constraints,) index of that node's first layout in `minors` and `orders`.
        minors, orders: contiguous dimension and dimension order that a layout asks for, or UNSET.
    """
    marked, marks = np.empty(len(nodes), np.int64), np.zeros((len(nodes), NUM_MARKS), np.float32)
    count = 0
    for colour, node in enumerate(nodes):
        tensor = tensors[node]
        if tensor == NOTHING:
            continue
        minor = order = UNSET
        for constraint in range(starts[tensor], starts[tensor + 1]):
            entry = firsts[constraint] + codes[configs[colour], configurable[constraint]]
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
    """Return the hash of a uint64 that solution.domain.codebook.mix gives."""
    value += GOLDEN
    value = (value ^ (value >> np.uint64(30))) * MIX_FIRST
    value = (value ^ (value >> np.uint64(27))) * MIX_SECOND
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True)
def _refine(numbers, operand_starts, operands, consumer_starts, consumers):
    """Return the arrays of Colours (distinct node values) after another round: the colour of each
    node in each configuration (nodes, configs); the node of each colour (colours,); and one
    configuration with each colour (colours,). A hash table, reset for each node, looks colours
    up."""
    # labels = mixed + FOR_OPERANDS * sum of mixed operands + FOR_CONSUMERS * sum of mixed consumers
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
    begun = np.full(1 << bits, -1, np.int64)  # (slots,) node that last wrote each slot of the table
    labels = np.empty(num_configs, np.uint64)
    count = 0
    for node in range(num_nodes):
        labels[:] = mixed[node]
        for edge in range(operand_starts[node], operand_starts[node + 1]):
            for config in range(num_configs):
                labels[config] += FOR_OPERANDS * mixed[operands[edge], config]
        for edge in range(consumer_starts[node], consumer_starts[node + 1]):
            for config in range(num_configs):
                labels[config] += FOR_CONSUMERS * mixed[consumers[edge], config]
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
    """Return the matrix of colour_refinement.aggregate as CSR arrays: starts, columns, values.
    `before`: colours (nodes, configs) before the round. `nodes`, `configs`: (colours after,) node
    and configuration of each colour."""
    # Messages of colour c: columns 3 c (to itself), 3 c + 1 (to consumers), 3 c + 2 (to operands).
    # A row has 1 for the node itself, 1 / operands for an operand, 1 / consumers for a consumer.
    starts = np.zeros(len(nodes) + 1, np.int32)
    for row, node in enumerate(nodes):
        count = operand_starts[node + 1] - operand_starts[node]
        count += consumer_starts[node + 1] - consumer_starts[node]
        starts[row + 1] = starts[row] + 1 + count
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    entry = 0
    for row, node in enumerate(nodes):
        config = configs[row]
        columns[entry], values[entry] = 3 * before[node, config], 1
        entry += 1
        begin, end = operand_starts[node], operand_starts[node + 1]
        for other in operands[begin:end]:
            columns[entry], values[entry] = 3 * before[other, config] + 1, 1 / (end - begin)
            entry += 1
        begin, end = consumer_starts[node], consumer_starts[node + 1]
        for other in consumers[begin:end]:
            columns[entry], values[entry] = 3 * before[other, config] + 2, 1 / (end - begin)
            entry += 1
    return starts, columns, values


class CompiledRound:
    """One round of the layout net on a CPU: sums of messages, norm and GELU. It has no weights;
    these belong to layout_gnn.ColourBlock."""

    def __init__(self, links: Round) -> None:
        self.links = links
        self.known = torch.from_numpy(links.marks.values)

    def prepare_gradient(self) -> None:
        """Do nothing: the backward pass needs nothing that could be computed in advance."""

    def receive(self, messages: Tensor, kept: Tensor, extra: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Return the colours' values after the round, float32, as Receiving.receive does. Raises
        ValueError if shapes do not fit, because compiled code would read out of bounds."""
        half, senders = messages.shape[1], self.links.aggregation.num_columns
        given = [tuple(tensor.shape) for tensor in (messages, kept, extra, norm.weight)]
        expected = [(senders, half), (senders // 3, 2 * half), (len(self.known), half), (half,)]
        if given != expected:
            raise ValueError(f"a round was given shapes {given}, expected {expected}")
        tensors = (messages.float(), kept.float(), extra.float(), norm.weight, norm.bias)
        found: Tensor = _Receive.apply(*tensors, norm.eps, self.links)
        return found


class _Receive(torch.autograd.Function):
    """A round with gradients: _receive computes the values, _hand_back the gradients."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        *tensors, epsilon, links = given
        arrays = [tensor.detach().contiguous().numpy() for tensor in tensors]
        values, *ctx.kept = _receive(*arrays, FLOAT(epsilon), *_list_entries(links))
        ctx.links = links
        ctx.save_for_backward(*tensors[3:])
        return torch.from_numpy(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = gradients[0].contiguous().numpy()
        senders = ctx.links.aggregation.num_columns
        scaling = [tensor.detach().contiguous().numpy() for tensor in ctx.saved_tensors]
        rows = np.zeros((3, gradient.shape[1] // 2), FLOAT)
        found = _hand_back(gradient, rows, *ctx.kept, *scaling, senders, *_list_entries(ctx.links))
        return *map(torch.from_numpy, found), None, None


def _list_entries(links: Round) -> tuple[np.ndarray, ...]:
    """Return a round's index arrays: the last five arguments of _receive and _hand_back."""
    rows = links.aggregation
    return links.marks.colours, rows.starts, rows.columns, rows.values, links.parents


@njit(**FAST)
def _erf(x):
    """Return erf(x) with an error below 4e-7. Source: Eigen's coefficients for float32 (MPL 2)."""
    x = min(max(x, -MOST_ERF), MOST_ERF)
    square = x * x
    above = FLOAT(-2.72614225801306e-10)
    above = above * square + FLOAT(2.77068142495902e-08)
    above = above * square + FLOAT(-2.10102402082508e-06)
    above = above * square + FLOAT(-5.69250639462346e-05)
    above = above * square + FLOAT(-7.34990630326855e-04)
    above = above * square + FLOAT(-2.95459980854025e-03)
    above = above * square + FLOAT(-1.60960333262415e-02)
    below = FLOAT(-1.45660718464996e-05)
    below = below * square + FLOAT(-2.13374055278905e-04)
    below = below * square + FLOAT(-1.68282697438203e-03)
    below = below * square + FLOAT(-7.37332916720468e-03)
    below = below * square + FLOAT(-1.42647390514189e-02)
    return x * above / below


@njit(**FAST)
def _density(x):
    """Return the standard normal density, error below 2e-6: the 64th power of exp(-x^2 / 128)."""
    # `part` lies between -0.5 and 0, where a Taylor polynomial of degree 5 suffices
    part = -min(FLOAT(0.5) * x * x, MOST_EXPONENT) / PARTS
    power = part * FLOAT(1 / 120) + FLOAT(1 / 24)
    power = power * part + FLOAT(1 / 6)
    power = power * part + FLOAT(1 / 2)
    power = (power * part + FLOAT(1)) * part + FLOAT(1)
    for _ in range(6):
        power *= power
    return power * DENSITY_AT_ZERO


@njit(**FAST)
def _receive(
    messages, kept, extra, weight, bias, epsilon, marked, starts, columns, values, parents
):  # fmt: skip
    """Return the node values (colours after, 2 x half) after a round. For the gradient, also return
    the normalised sums of messages (colours after, half), without weight and bias, and the factor
    1 / deviation (colours after,) that normalised them."""
    # s = sum of factor * message, plus extra;  n = (s - mean(s)) / sqrt(variance(s) + epsilon)
    # u = n * weight + bias;  result = kept + [GELU(u), GELU(-u)]
    count, half = len(parents), messages.shape[1]
    found = np.empty((count, 2 * half), FLOAT)
    normed, scales = np.empty((count, half), FLOAT), np.empty(count, FLOAT)
    mark = 0
    for row in range(count):
        sums = normed[row]
        sums[:] = 0
        for entry in range(starts[row], starts[row + 1]):
            message, factor = messages[columns[entry]], values[entry]
            for j in range(half):
                sums[j] += factor * message[j]
        if mark < len(marked) and marked[mark] == row:
            for j in range(half):
                sums[j] += extra[mark, j]
            mark += 1
        mean = square = FLOAT(0)
        for j in range(half):
            mean += sums[j]
        mean /= FLOAT(half)
        for j in range(half):
            sums[j] -= mean
            square += sums[j] * sums[j]
        scale = FLOAT(1) / np.sqrt(square / FLOAT(half) + epsilon)
        scales[row] = scale
        result, stays = found[row], kept[parents[row]]
        for j in range(half):
            sums[j] *= scale
            update = sums[j] * weight[j] + bias[j]
            positive = FLOAT(0.5) * update * (FLOAT(1) + _erf(update * ROOT_HALF))
            result[j] = positive + stays[j]
            result[half + j] = positive - update + stays[half + j]  # GELU(-u) = GELU(u) - u
    return found, normed, scales


@njit(**FAST)
def _hand_back(
    gradient, rows, normed, scales, weight, bias, senders, marked, starts, columns, values, parents
):  # fmt: skip
    """Return the gradients of the arguments messages, kept, extra, weight and bias of _receive.
    `gradient`: (colours after, 2 x half), of the values that _receive returned. `rows`: (3, half)
    zeros, which are overwritten."""
    # With n, s and u as in _receive, and the gradient g = [g1, g2] of the values that it returned:
    # du = GELU'(u) (g1 + g2) - g2;  dweight = sum of du n;  dbias = sum of du;  dn = du weight
    # ds = (dn - mean(dn) - n mean(dn n)) / deviation of s;  dmessage = sum of factor * ds
    count, half = normed.shape
    to_messages = np.zeros((senders, half), FLOAT)
    to_kept = np.zeros((senders // 3, 2 * half), FLOAT)
    to_extra = np.zeros((len(marked), half), FLOAT)
    to_weight, to_bias, change = rows[0], rows[1], rows[2]
    mark = 0
    for row in range(count):
        asked, known, stays = gradient[row], normed[row], to_kept[parents[row]]
        for j in range(2 * half):
            stays[j] += asked[j]
        for j in range(half):
            update = known[j] * weight[j] + bias[j]
            slope = FLOAT(0.5) * (FLOAT(1) + _erf(update * ROOT_HALF)) + update * _density(update)
            to_update = slope * (asked[j] + asked[half + j]) - asked[half + j]
            to_weight[j] += to_update * known[j]
            to_bias[j] += to_update
            change[j] = to_update * weight[j]
        # This loop must not write another array: it would be vectorised only if the arrays lie far
        # enough apart in memory, so the order of the sums would differ from run to run.
        mean = along = FLOAT(0)
        for j in range(half):
            mean += change[j]
            along += change[j] * known[j]
        mean /= FLOAT(half)
        along /= FLOAT(half)
        for j in range(half):
            change[j] = (change[j] - mean - known[j] * along) * scales[row]
        if mark < len(marked) and marked[mark] == row:
            to_extra[mark] = change
            mark += 1
        for entry in range(starts[row], starts[row + 1]):
            message, factor = to_messages[columns[entry]], values[entry]
            for j in range(half):
                message[j] += factor * change[j]
    return to_messages, to_kept, to_extra, to_weight, to_bias
