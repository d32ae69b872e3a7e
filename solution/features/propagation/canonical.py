"""Add the transposes and reshapes that XLA's CPU backend puts around dots and convolutions.

The backend adds them before it assigns layouts, because it can compute only one canonical form:

* A dot reads the left operand as (batch, free, contracted) and the right one as (batch,
  contracted, free). An operand in another order is transposed, except a matrix whose two
  dimensions are merely swapped, which the dot reads as it is. Several free dimensions are merged
  into one, and the result is reshaped back.
* A convolution has the batch first and the features last; its kernel ends with input and output
  features.

Two simplifications: an operand is never reshaped here, because that moves no data, and two equal
transposes of one tensor are not merged.

This file also finds the layouts that no configuration can change, such as layouts of parameters.

Source: DotDecomposer, TransposeFolding and ConvCanonicalization of openxla/xla.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS
from solution.features.einsum import Dimensions, Einsum
from solution.features.operations import find_operands, tensor_ranks
from solution.features.propagation.backend import Backend
from solution.features.propagation.inlining import Inlined

# the same values as in solution.features.propagation.orders, which imports numba
UNSET, BITS = -1, 3


def transpose_operands(graph: Graph, inlined: Inlined) -> Inlined:
    """Return the instances together with the backend's transposes before dots and convolutions, and
    its reshapes after dots whose operands it reshapes to matrices."""
    orders, matrices = find_orders(graph), find_matrices(graph)
    found = Inlined()
    new: list[int] = []  # for each instance of `inlined`, its number in `found`
    for node, reads, names in zip(inlined.node, inlined.reads, inlined.named, strict=True):
        read = [new[one] for one in reads]
        for operand, tensor, order in orders.get(node, ()):
            matching = [index for index, name in enumerate(names) if name == tensor]
            if matching:
                # If a tensor is multiplied by itself, its second occurrence is the kernel.
                index = matching[-1 if operand else 0]
                found.orders[len(found.node)] = order
                read[index] = found.add(tensor, [read[index]], [tensor])
        new.append(found.add(node, read, names))
        if node in matrices:
            found.matrices[new[-1]] = matrices[node]
            new[-1] = found.add(node, [new[-1]], [node])
            found.reshapes.add(new[-1])
    return replace(found, results=[new[one] for one in inlined.results])


def find_orders(graph: Graph) -> dict[int, list[tuple[int, int, Dimensions]]]:
    """Return {dot or convolution: its operands to transpose}. Each operand is a tuple: 0 (input) or
    1 (kernel), the node that computes the operand, and the permutation."""
    operands, ranks = find_operands(graph), tensor_ranks(graph)
    orders = {node: _order_dot(letters) for node, letters in operands.letters.items()}
    for node in np.flatnonzero(graph.node_opcodes == OPCODE_IDS["convolution"]).tolist():
        orders[node] = _order_convolution(graph.node_features[node].astype(int), int(ranks[node]))
    return {
        node: [
            (operand, tensor, order)
            for operand, order in enumerate(both)
            if (tensor := int((operands.input, operands.kernel)[operand][node])) >= 0
            and sorted(order) == list(range(ranks[tensor])) != list(order)
        ]
        for node, both in orders.items()
    }


def find_matrices(graph: Graph) -> dict[int, Dimensions]:
    """Return {dot: sizes of its result} for dots with an operand of several free dimensions, which
    the backend merges into one. In the sizes, batch dimensions come first."""
    found = {}
    for node, letters in find_operands(graph).letters.items():
        left, right, output = letters
        shape = graph.node_features[node, vocabulary.SHAPE_DIMENSIONS].astype(int).tolist()
        sizes = list(zip(output, shape, strict=False))  # a shape is padded with zeros past the rank
        batch = [size for letter, size in sizes if letter in letters.batch]
        free = [[size for letter, size in sizes if letter not in other] for other in (right, left)]
        if max(map(len, free)) > 1:
            found[node] = (*batch, *(math.prod(part) for part in free if part))
    return found


def find_turned(
    inlined: Inlined, opcodes: np.ndarray, rank: np.ndarray, dimensions: np.ndarray
) -> dict[int, Dimensions]:
    """Return {dot: permutation of the transpose that reads it} for dots whose operands are swapped:
    AlgebraicSimplifier replaces (A B)' by B' A' if nothing else reads A B. Arguments: fields of
    Instructions."""
    times_read = Counter(one for reads in [*inlined.reads, inlined.results] for one in reads)
    turned = {}
    for reader in np.flatnonzero(opcodes[: len(inlined.node)] == OPCODE_IDS["transpose"]).tolist():
        (dot, *_) = inlined.reads[reader] or [reader]
        order = (*range(rank[dot] - 2), rank[dot] - 1, rank[dot] - 2)
        is_dot = opcodes[dot] == OPCODE_IDS["dot"] and rank[dot] >= 2
        listed = tuple(dimensions[reader, : rank[dot]].tolist())
        if is_dot and listed == order and times_read[dot] == 1:
            turned[dot] = order
    return turned


def reads_across(letters: Einsum) -> tuple[bool, bool]:
    """Return two flags for a dot A B: whether it contracts the first dimension of A, and whether,
    after a swap of the operands, it contracts the first dimension of B (then the left matrix)."""
    left, right = (
        operand[order[-1]] in letters.output
        for operand, order in zip(letters[:2], _order_dot(letters), strict=True)
    )
    return left, right


def _order_dot(letters: Einsum) -> tuple[Dimensions, Dimensions]:
    """Return the permutations in which a dot reads its left and its right operand."""
    left, right, output = letters
    batch = [*letters.batch]
    summed = [letter for letter in left if letter not in output]
    of_left = [letter for letter in output if letter not in right]
    of_right = [letter for letter in output if letter not in left]
    return (_order(left, batch, [of_left, summed]), _order(right, batch, [summed, of_right]))


def _order(given: Dimensions, batch: list[int], wanted: list[list[int]]) -> Dimensions:
    """Return the permutation that brings the letters `given` into the order batch, `wanted`; the
    identity if it would only swap the two dimensions of a matrix, which a dot reads either way."""
    is_matrix = all(len(part) == 1 for part in wanted) and [*given[: len(batch)]] == batch
    letters = given if is_matrix else [*batch, *wanted[0], *wanted[1]]
    return tuple(given.index(letter) for letter in letters)


def _order_convolution(numbers: np.ndarray, rank: int) -> tuple[Dimensions, Dimensions]:
    """Return the permutations in which a convolution reads its input and its kernel."""
    spatial = max(rank - 2, 0)
    source = (
        numbers[vocabulary.CONVOLUTION_INPUT_BATCH],
        *numbers[vocabulary.CONVOLUTION_INPUT_SPATIAL][:spatial],
        numbers[vocabulary.CONVOLUTION_INPUT_FEATURE],
    )
    kernel = (
        *numbers[vocabulary.CONVOLUTION_KERNEL_SPATIAL][:spatial],
        numbers[vocabulary.CONVOLUTION_KERNEL_INPUT],
        numbers[vocabulary.CONVOLUTION_KERNEL_OUTPUT],
    )
    return tuple(map(int, source)), tuple(map(int, kernel))


def fix_layouts(
    graph: Graph,
    node: np.ndarray,
    opcodes: np.ndarray,
    ranks: np.ndarray,
    count: int,
    backend: Backend,
) -> np.ndarray:
    """Return the packed layouts (instructions,) that no configuration changes: of parameters and,
    on some backends, of results of dots and convolutions; UNSET for all others. The instructions
    from number `count` on are custom calls and the reader of the program's results."""
    fixed = np.full(len(node), UNSET, np.int64)
    opcodes = opcodes[:count]
    layouts = _read_layouts(graph)[node[:count]]
    wanted = opcodes == OPCODE_IDS["parameter"]
    fixed[:count][wanted] = layouts[wanted]
    if backend.row_major:
        for index in np.flatnonzero(opcodes == OPCODE_IDS["dot"]):
            fixed[index] = pack_layout(range(int(ranks[index]))[::-1])
        for index in np.flatnonzero(opcodes == OPCODE_IDS["convolution"]):
            fixed[index] = _find_canonical(graph, int(node[index]))
    return fixed


def turn_dots(
    inlined: Inlined, described: dict[str, np.ndarray], opcodes: np.ndarray, backend: Backend
) -> np.ndarray:
    """Return the field `turned` of Instructions: the packed layouts of the dots that find_turned
    returns, else UNSET."""
    turned = np.full(len(opcodes), UNSET, np.int64)
    if backend.canonical_operands:
        found = find_turned(inlined, opcodes, described["rank"], described["dimensions"])
        for dot, order in found.items():
            turned[dot] = pack_layout(order[::-1])
    return turned


def _find_canonical(graph: Graph, node: int) -> int:
    """Return a convolution's packed output layout: features innermost, the batch outermost."""
    row = graph.node_features[node].astype(np.int64)
    rank = int(min(tensor_ranks(graph)[node], MAX_RANK))
    batch, features = (
        row[vocabulary.CONVOLUTION_OUTPUT_BATCH], row[vocabulary.CONVOLUTION_OUTPUT_FEATURE]
    )  # fmt: skip
    spatial = [axis for axis in range(rank) if axis not in (batch, features)]
    order = [features, *reversed(spatial), batch]
    if sorted(order) != list(range(rank)):
        order = list(range(rank))[::-1]
    return pack_layout(order)


def _read_layouts(graph: Graph) -> np.ndarray:
    """Return each node's layout (nodes,) in the module; row-major if it has no valid one."""
    ranks = np.minimum(tensor_ranks(graph), MAX_RANK).astype(np.int64)
    given = graph.node_features[:, vocabulary.NODE_LAYOUT].astype(np.int64)
    slots = np.arange(MAX_RANK)
    used = slots < ranks[:, None]
    row_major = np.where(used, ranks[:, None] - 1 - slots, slots)
    filled = np.where(used, given, slots)
    sound = (np.sort(filled, axis=1) == slots).all(axis=1)
    return pack_rows(np.where(used, np.where(sound[:, None], given, row_major), 0))


def pack_layout(dimensions: Sequence[int]) -> int:
    """Pack one layout, minor to major, into an integer."""
    return int(pack_rows(np.array([*dimensions, *[0] * (MAX_RANK - len(dimensions))])))


def unpack_layout(layout: int, rank: int) -> tuple[int, ...]:
    """Return the dimensions of a packed layout, minor to major."""
    return tuple(int(layout) >> BITS * slot & (1 << BITS) - 1 for slot in range(rank))


def pack_rows(dimensions: np.ndarray) -> np.ndarray:
    """Pack layouts (..., 6), minor to major and 0 past the rank, into integers."""
    return np.asarray((dimensions.astype(np.int64) << (BITS * np.arange(MAX_RANK))).sum(axis=-1))


def make_row_major(rank: np.ndarray) -> np.ndarray:
    """Return the packed row-major layouts (n,) of tensors with `rank` (n,)."""
    slots = np.arange(MAX_RANK)
    used = slots < rank[:, None]
    return pack_rows(np.where(used, rank[:, None] - 1 - slots, 0))
