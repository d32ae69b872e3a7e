"""The transpositions that XLA's CPU backend puts in front of products before it assigns layouts.

It multiplies in one form only: behind the dimensions of a batch, the left operand's own and then
those that are summed, of the right operand first those; convolutions with the batch first and the
features last, by kernels that end with the features of input and output. An operand with another
order is transposed, but for matrices that only need be turned: products read these as they are.

Source: DotDecomposer, TransposeFolding and ConvCanonicalization of openxla/xla.
"""

import math
from dataclasses import replace

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.einsum import Dimensions, Einsum
from solution.features.operands import find_operands
from solution.features.padding import tensor_ranks
from solution.features.propagation.inlining import Inlined

Orders = dict[int, Dimensions]  # of an operand's node, how it is transposed


def transpose_operands(graph: Graph, inlined: Inlined) -> Inlined:
    """The same instances, each behind those that the compiler adds for what it reads."""
    orders, matrices = find_orders(graph), find_matrices(graph)
    found, new = Inlined(), []  # new: the number that each instance gets
    for node, reads, names in zip(inlined.node, inlined.reads, inlined.named, strict=True):
        read = [new[one] for one in reads]
        for tensor, order in orders.get(node, {}).items():
            place = names.index(tensor) if tensor in names else None
            if place is not None:
                found.orders[len(found.node)] = order
                read[place] = found.add(tensor, [read[place]], [tensor])
        new.append(found.add(node, read, names))
        if node in matrices:
            found.matrices[new[-1]] = matrices[node]
            new[-1] = found.add(node, [new[-1]], [node])
            found.reshapes.add(new[-1])
    return replace(found, results=[new[one] for one in inlined.results])


def find_orders(graph: Graph) -> dict[int, Orders]:
    """Of each dot and convolution, the operands that it does not read as they are."""
    operands, ranks = find_operands(graph), tensor_ranks(graph)
    found: dict[int, Orders] = {}
    for node, letters in operands.letters.items():
        left, right = _order_dot(letters)
        found[node] = {int(operands.input[node]): left, int(operands.kernel[node]): right}
    for node in np.flatnonzero(graph.node_opcodes == OPCODE_IDS["convolution"]).tolist():
        source, kernel = int(operands.input[node]), int(operands.kernel[node])
        orders = _order_convolution(graph.node_features[node].astype(int), int(ranks[node]))
        found[node] = dict(zip((source, kernel), orders, strict=True))
    return {
        node: {
            tensor: order
            for tensor, order in orders.items()
            if tensor >= 0 and sorted(order) == list(range(ranks[tensor])) != list(order)
        }
        for node, orders in found.items()
    }


def find_matrices(graph: Graph) -> dict[int, Dimensions]:
    """The sizes of what each dot makes whose operands have several dimensions of their own."""
    found = {}
    for node, letters in find_operands(graph).letters.items():
        left, right = ([k for k in letters.output if k in own] for own in letters[:2])
        shape = graph.node_features[node, vocabulary.SHAPE_DIMENSIONS].astype(int).tolist()
        sizes = dict(zip(letters.output, shape, strict=False))
        batch = [sizes[letter] for letter in left if letter in right]
        own = [[sizes[letter] for letter in left if letter not in right],
               [sizes[letter] for letter in right if letter not in left]]  # fmt: skip
        if max(map(len, own)) > 1:
            found[node] = (*batch, *(math.prod(one) for one in own if one))
    return found


def _order_dot(letters: Einsum) -> tuple[Dimensions, Dimensions]:
    """The orders in which a dot reads its operands."""
    batch = set(letters.left) & set(letters.right) & set(letters.output)
    summed = [letter for letter in letters.left if letter not in letters.output]
    shared = [letter for letter in letters.output if letter in batch]
    orders = []
    for own, is_left in ((letters.left, True), (letters.right, False)):
        free = [letter for letter in letters.output if letter in own and letter not in batch]
        wanted = [*shared, *free, *summed] if is_left else [*shared, *summed, *free]
        is_matrix = len(free) == len(summed) == 1 and list(own[: len(shared)]) == shared
        order = range(len(own)) if is_matrix else map(own.index, wanted)
        orders.append(tuple(order))
    return orders[0], orders[1]


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
