"""What XLA's CPU backend puts around products before it assigns layouts.

It multiplies in one form only: behind the dimensions of a batch, the left operand's own and then
those that are summed, of the right operand first those; convolutions with the batch first and the
features last, by kernels that end with the features of input and output. An operand with another
order is transposed, but for matrices that only need be turned: products read these as they are.
What has several dimensions of its own becomes a matrix; what a dot makes is reshaped back. (What it
reads is not reshaped here, for that moves nothing; nor are two equal transpositions taken for one.)

Source: DotDecomposer, TransposeFolding and ConvCanonicalization of openxla/xla.
"""

import math
from collections import Counter
from dataclasses import replace

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.einsum import Dimensions, Einsum
from solution.features.operands import find_operands
from solution.features.padding import tensor_ranks
from solution.features.propagation.inlining import Inlined


def transpose_operands(graph: Graph, inlined: Inlined) -> Inlined:
    """The same instances, each behind those that the compiler adds for what it reads."""
    orders, matrices = find_orders(graph), find_matrices(graph)
    found = Inlined()
    new: list[int] = []  # the number that each instance gets
    for node, reads, names in zip(inlined.node, inlined.reads, inlined.named, strict=True):
        read = [new[one] for one in reads]
        for operand, tensor, order in orders.get(node, ()):
            places = [place for place, name in enumerate(names) if name == tensor]
            if places:
                place = places[-1 if operand else 0]  # of a square, the kernel is read second
                found.orders[len(found.node)] = order
                read[place] = found.add(tensor, [read[place]], [tensor])
        new.append(found.add(node, read, names))
        if node in matrices:
            found.matrices[new[-1]] = matrices[node]
            new[-1] = found.add(node, [new[-1]], [node])
            found.reshapes.add(new[-1])
    return replace(found, results=[new[one] for one in inlined.results])


def find_orders(graph: Graph) -> dict[int, list[tuple[int, int, Dimensions]]]:
    """What each dot and convolution does not read as it is.

    Returns:
        by node: 0 for its input, 1 for its kernel; the node whose tensor that is; how that is
        transposed.
    """
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
    """The sizes of what each dot makes whose operands have several dimensions of their own."""
    found = {}
    for node, letters in find_operands(graph).letters.items():
        left, right, output = letters
        shape = graph.node_features[node, vocabulary.SHAPE_DIMENSIONS].astype(int).tolist()
        sizes = list(zip(output, shape, strict=False))  # a shape is filled up with zeros
        batch = [size for letter, size in sizes if letter in letters.batch]
        own = [[size for letter, size in sizes if letter not in other] for other in (right, left)]
        if max(map(len, own)) > 1:
            found[node] = (*batch, *(math.prod(part) for part in own if part))
    return found


def find_turned(
    inlined: Inlined, opcodes: np.ndarray, rank: np.ndarray, dimensions: np.ndarray
) -> dict[int, Dimensions]:
    """The dots that are turned round instead of transposed, and the orders of what reads them.

    AlgebraicSimplifier makes B' A' of the transposed product of A and B, if nothing else reads it.

    Args:
        opcodes, rank, dimensions: of Instructions, for the instances.
    """
    times_read = Counter(one for reads in [*inlined.reads, inlined.results] for one in reads)
    turned = {}
    for reader in np.flatnonzero(opcodes[: len(inlined.node)] == OPCODE_IDS["transpose"]).tolist():
        (own, *_) = inlined.reads[reader] or [reader]
        order = (*range(rank[own] - 2), rank[own] - 1, rank[own] - 2)
        is_dot = opcodes[own] == OPCODE_IDS["dot"] and rank[own] >= 2
        listed = tuple(dimensions[reader, : rank[own]].tolist())
        if is_dot and listed == order and times_read[own] == 1:
            turned[own] = order
    return turned


def reads_across(letters: Einsum) -> tuple[bool, bool]:
    """Whether the left matrix of a dot is summed along its first dimension; and if turned round.

    The transposed product of A and B is that of B' and A', so its left matrix was the right one.
    """
    left, right = (
        own[order[-1]] in letters.output
        for own, order in zip(letters[:2], _order_dot(letters), strict=True)
    )
    return left, right


def _order_dot(letters: Einsum) -> tuple[Dimensions, Dimensions]:
    """The orders in which a dot reads its operands."""
    left, right, output = letters
    batch = [*letters.batch]
    summed = [letter for letter in left if letter not in output]
    of_left = [letter for letter in output if letter not in right]
    of_right = [letter for letter in output if letter not in left]
    return (
        _order(left, batch, [of_left, summed]),
        _order(right, batch, [summed, of_right]),
    )


def _order(own: Dimensions, batch: list[int], wanted: list[list[int]]) -> Dimensions:
    """The order that puts an operand's letters as wanted; none where its matrices are turned."""
    is_matrix = all(len(part) == 1 for part in wanted) and [*own[: len(batch)]] == batch
    letters = own if is_matrix else [*batch, *wanted[0], *wanted[1]]
    return tuple(own.index(letter) for letter in letters)


def _order_convolution(numbers: np.ndarray, rank: int) -> tuple[Dimensions, Dimensions]:
    """The orders in which a convolution with these features reads its input and its kernel."""
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
