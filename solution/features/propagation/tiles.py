"""Choose the layouts in which a TPU stores and computes arrays, by their padded size.

A TPU stores the two minor dimensions of an array in tiles: the minor one is padded to a multiple of
128 elements (lanes), the next one to a multiple of 8 (sublanes), or to a power of two below 8. So a
layout costs memory wherever a short dimension is minor, and the compiler chooses layouts with
little padding:

* An array at the program's boundary (a parameter or a result) has the layout of least padded size.
  Its other dimensions are row-major, and ties go to row-major.
* A dot of two matrices is written in the layout of least padded size, too.
* A dot of arrays of higher rank is computed as a convolution. The two minor dimensions of an
  operand are its largest free and its largest contracted dimension; those of the result are the
  largest free dimension of each operand. Of both orders, the one with less padding is chosen. The
  other dimensions are row-major.
* The two minor dimensions of a convolution's input and result are batch and features, those of its
  kernel are the input and the output features, again in the order with less padding.

These rules were found by compiling small programs with libtpu 0.0.42.1 for a TPU v3.
"""

import math
from collections.abc import Sequence
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import LANES, MAX_RANK, OPCODE_IDS, SUBLANES
from solution.features.einsum import Einsum
from solution.features.operations import NONE, element_bytes, find_operands, tensor_ranks
from solution.features.propagation.calls import IS_ELEMENTWISE, find_forwarding
from solution.features.propagation.canonical import (
    BITS,
    UNSET,
    find_turned,
    pack_layout,
    unpack_layout,
)
from solution.features.propagation.inlining import Inlined

if TYPE_CHECKING:
    from solution.features.propagation.instructions import Instructions

# maximum number of groups of dimensions of a reshape whose orders are compared
MOST_GROUPS = 5
# opcodes of the readers on a path from one dot to another dot that depends on it
PASSING = [*np.flatnonzero(IS_ELEMENTWISE), OPCODE_IDS["dot"], OPCODE_IDS["transpose"]]
REDUCE = OPCODE_IDS["reduce"]
PRODUCTS = [OPCODE_IDS[name] for name in ("convolution", "dot")]

Layout = tuple[int, ...]  # the dimensions of a tensor, minor to major


def find_fewest_rows(width: np.ndarray) -> np.ndarray:
    """Return the minimum number of rows (tensors,) of a register tile, given the bytes of an
    element: 8 rows for 1 byte, 4 for 2 bytes, 2 for 4 bytes and more.

    A TPU v3 stores an element of less than a byte, such as s4, in a byte.
    """
    return np.asarray(np.clip(SUBLANES / np.minimum(width, 4), 2, SUBLANES))


def count_rows(size: int, fewest: int) -> int:
    """Return the number of rows of a tile, a power of two up to 8, if the second minor dimension
    has this size; `fewest`: see find_fewest_rows."""
    rows = fewest
    while rows < min(SUBLANES, size):
        rows *= 2
    return rows


def count_padded(sizes: Sequence[int], minor: int, second: int, fewest: int) -> int:
    """Return the number of elements of an array whose dimensions `minor` and `second` are padded to
    tiles. `fewest`: minimum size of the padded second minor dimension; see find_fewest_rows."""
    rows = count_rows(sizes[second], fewest)
    tiled = math.ceil(sizes[minor] / LANES) * LANES * math.ceil(sizes[second] / rows) * rows
    others = math.prod(size for k, size in enumerate(sizes) if k not in (minor, second))
    return tiled * others


def choose_layout(
    sizes: Sequence[int], fewest: int, pairs: Sequence[tuple[int, int]] | None = None
) -> Layout:
    """Return the layout of least padded size, minor to major. `fewest`: as in count_padded.
    `pairs`: candidates for the two minor dimensions, (minor, second minor); of equally good pairs,
    the first wins. None: all pairs, the row-major one first."""
    row_major = range(len(sizes))[::-1]
    if pairs is None:
        pairs = [(minor, second) for minor in row_major for second in row_major if minor != second]
    if not pairs:
        return tuple(row_major)
    best = min(pairs, key=lambda pair: count_padded(sizes, pair[0], pair[1], fewest))
    return (*best, *(axis for axis in row_major if axis not in best))


def divide_dimensions(
    left: Sequence[int], right: Sequence[int]
) -> list[tuple[list[int], list[int]]] | None:
    """Divide the dimensions of both sides of a reshape into the smallest groups of equal size
    (number of elements). Dimensions of size 1 are left out. None if the sides differ in size."""
    axes = [[axis for axis, size in enumerate(one) if size != 1] for one in (left, right)]
    groups: list[tuple[list[int], list[int]]] = []
    while axes[0] and axes[1]:
        group: tuple[list[int], list[int]] = ([axes[0].pop(0)], [axes[1].pop(0)])
        products = [left[group[0][0]], right[group[1][0]]]
        while products[0] != products[1]:
            side = 0 if products[0] < products[1] else 1
            if not axes[side]:
                return None
            group[side].append(axes[side].pop(0))
            products[side] *= (left, right)[side][group[side][-1]]
        groups.append(group)
    return None if axes[0] or axes[1] else groups


def choose_reshape(
    sizes: tuple[Sequence[int], Sequence[int]], fewest: int
) -> tuple[Layout, Layout] | None:
    """Return the layouts of operand and result of a reshape that moves data.

    Compare only pairs of layouts that would make the reshape a bitcast if there were no tiles.
    Choose the pair with the least padded size of both tensors; of equal pairs, the pair with more
    rows in its tiles, then the row-major pair. The compiler made this choice for 201 of 202 random
    reshapes (`python -m benchmarks.tpu_reshapes`).

    Args:
        sizes: sizes of the operand's and of the result's dimensions.
        fewest: minimum size of the padded second minor dimension; see find_fewest_rows.

    Returns:
        None if the shapes do not fit each other, if one has a rank below 2, or if more than
        MOST_GROUPS groups of dimensions could change places.
    """
    groups = divide_dimensions(*sizes)
    if groups is None or min(map(len, sizes)) < 2 or len(groups) > MOST_GROUPS:
        return None
    ones = [[axis for axis in range(len(one))[::-1] if one[axis] == 1] for one in sizes]

    def lay_out(order: Sequence[int], side: int) -> Layout:
        return (*(axis for part in order for axis in groups[part][side][::-1]), *ones[side])

    def weigh(pair: tuple[Layout, Layout]) -> tuple[int, int]:
        minors = [(one, layout[0], layout[1]) for one, layout in zip(sizes, pair, strict=True)]
        padded = sum(count_padded(one, minor, second, fewest) for one, minor, second in minors)
        return padded, -sum(count_rows(one[second], fewest) for one, _, second in minors)

    orders = permutations(range(len(groups))[::-1])
    return min(((lay_out(order, 0), lay_out(order, 1)) for order in orders), key=weigh)


class DeviceLayouts:
    """The layouts that a TPU gives to the tensors of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._features = graph.node_features
        self._ranks = np.minimum(tensor_ranks(graph), MAX_RANK).astype(int)
        sizes = np.maximum(graph.node_features[:, vocabulary.SHAPE_DIMENSIONS].astype(int), 1)
        self._sizes = [
            tuple(row[:rank]) for row, rank in zip(sizes.tolist(), self._ranks, strict=True)
        ]
        self._fewest = find_fewest_rows(element_bytes(graph)).astype(int).tolist()
        self._operands = find_operands(graph)
        self._opcodes = graph.node_opcodes

    def choose(self) -> np.ndarray:
        """Return for each node the packed layout (nodes,) with the least padded size."""
        known: dict[tuple[tuple[int, ...], int], int] = {}
        found = np.empty(len(self._sizes), np.int64)
        for node, key in enumerate(zip(self._sizes, self._fewest, strict=True)):
            if key not in known:
                known[key] = pack_layout(choose_layout(*key))
            found[node] = known[key]
        return found

    def describe(self, node: int) -> tuple[tuple[int, ...], int]:
        """Return a node's sizes, and the minimum number of elements to which its second minor
        dimension is padded."""
        return self._sizes[node], self._fewest[node]

    def choose_product(self, node: int) -> tuple[int, int, int]:
        """Return the packed layouts of result, input and kernel that a dot or convolution requests;
        UNSET for a tensor of which it requests no layout."""
        tensors = node, int(self._operands.input[node]), int(self._operands.kernel[node])
        if self._opcodes[node] == OPCODE_IDS["convolution"]:
            pairs = self._pair_convolution(node)
        else:
            letters = self._operands.letters.get(node)
            if letters is None:
                return self._pack(node, None), UNSET, UNSET
            if max(map(len, letters[:2])) <= 2:
                return self._pack(node, None), UNSET, UNSET
            pairs = self._pair_dot(letters, tensors)
        found = [self._pack(tensor, pair) for tensor, pair in zip(tensors, pairs, strict=True)]
        return found[0], found[1], found[2]

    @staticmethod
    def has_rank(layout: int, rank: int) -> bool:
        """Return True if a packed layout lists the dimensions of a tensor of that rank."""
        is_permutation = sorted(unpack_layout(layout, rank)) == list(range(rank))
        return is_permutation and layout >> BITS * rank == 0

    def avoid_summed(self, node: int, layout: int, summed: list[int]) -> int:
        """Return the packed `layout`. If a later reduction sums over the minor dimension, but not
        over the next one (`summed`: its dimensions), swap the two, unless that costs padding."""
        minor, second, *others = unpack_layout(layout, int(self._ranks[node]))
        padded = [
            count_padded(self._sizes[node], pair[0], pair[1], self._fewest[node])
            for pair in ((minor, second), (second, minor))
        ]
        if minor in summed and second not in summed and padded[0] == padded[1]:
            return pack_layout([second, minor, *others])
        return layout

    def choose_reshape(self, operand: int, result: int) -> tuple[int, int]:
        """Return the packed layouts of the two sides of a reshape that moves data; UNSET if its
        shapes do not fit, or if one is of rank 1. See the function choose_reshape."""
        sizes = self._sizes[operand], self._sizes[result]
        found = choose_reshape(sizes, self._fewest[result])
        return (UNSET, UNSET) if found is None else (pack_layout(found[0]), pack_layout(found[1]))

    def _pack(self, tensor: int, pair: tuple[int, int] | None) -> int:
        if tensor == NONE or self._ranks[tensor] < 2:
            return UNSET
        rank = int(self._ranks[tensor])
        is_pair = pair is not None and pair[0] != pair[1] and max(pair) < rank
        pairs = [pair, pair[::-1]] if pair is not None and is_pair else None
        return pack_layout(choose_layout(self._sizes[tensor], self._fewest[tensor], pairs))

    def _pair_convolution(self, node: int) -> list[tuple[int, int] | None]:
        """Return the two minor dimensions of the result, input and kernel of a convolution."""
        row = self._features[node].astype(int)
        names = vocabulary
        pairs = [
            (row[names.CONVOLUTION_OUTPUT_FEATURE], row[names.CONVOLUTION_OUTPUT_BATCH]),
            (row[names.CONVOLUTION_INPUT_FEATURE], row[names.CONVOLUTION_INPUT_BATCH]),
            (row[names.CONVOLUTION_KERNEL_OUTPUT], row[names.CONVOLUTION_KERNEL_INPUT]),
        ]
        return [(int(minor), int(second)) for minor, second in pairs]

    def _pair_dot(
        self, letters: Einsum, tensors: tuple[int, int, int]
    ) -> list[tuple[int, int] | None]:
        """Return the two minor dimensions of the result, input and kernel of a dot. In each pair
        the later dimension is first, as in row-major. None: the tensor has no pair."""
        left, right, output = letters
        sizes = {
            letter: size
            for order, tensor in zip((left, right), tensors[1:], strict=True)
            for letter, size in zip(order, self._sizes[tensor], strict=False)
        }

        def largest(found: list[int]) -> list[int]:
            return [max(found, key=sizes.__getitem__)] if found else []

        of_left = largest([letter for letter in left if letter not in right])
        of_right = largest([letter for letter in right if letter not in left])
        summed = largest([letter for letter in left if letter not in output])
        orders = (output, left, right)
        wanted = (of_left + of_right, of_left + summed, summed + of_right)
        pairs: list[tuple[int, int] | None] = []
        for order, two in zip(orders, wanted, strict=True):
            axes = sorted(order.index(letter) for letter in two)
            pairs.append((axes[1], axes[0]) if len(axes) == 2 else None)
        return pairs


def choose_layouts(graph: Graph, inlined: Inlined, ops: "Instructions") -> "Instructions":
    """Return the instructions with the layouts that a TPU chooses by size.

    The fields with these layouts are `device`, `fixed` (of parameters, dots, convolutions and
    reshapes) and `wanted` (of operands of dots, convolutions and reshapes). Two more fields, which
    only a TPU needs, are filled: `only_reader` and `forwards`.
    """
    layouts, count = DeviceLayouts(graph), len(inlined.node)
    device, fixed, wanted = ops.device.copy(), ops.fixed.copy(), ops.wanted.copy()
    opcodes = ops.opcodes[:count]
    device[:count] = layouts.choose()[ops.node[:count]]
    is_parameter = opcodes == OPCODE_IDS["parameter"]
    fixed[:count][is_parameter] = device[:count][is_parameter]
    for op in np.flatnonzero(np.isin(opcodes, PRODUCTS)).tolist():
        fixed[op], *operands = layouts.choose_product(inlined.node[op])
        for use, layout in zip(ops.main[op], operands, strict=True):
            if use != NONE and layouts.has_rank(layout, int(ops.rank[ops.read[use]])):
                wanted[use] = layout
        summed = _find_summed(ops, op)
        if summed:
            fixed[op] = layouts.avoid_summed(inlined.node[op], int(fixed[op]), summed)
    # A dot of two matrices that only a transpose reads gets the transpose's best layout.
    turned = find_turned(inlined, ops.opcodes, ops.rank, ops.dimensions)
    for dot, order in turned.items():
        if len(order) == 2:
            sizes, fewest = layouts.describe(inlined.node[dot])
            chosen = choose_layout(sizes[::-1], fewest)
            fixed[dot] = pack_layout([order[axis] for axis in chosen])
    for op in np.flatnonzero(opcodes == OPCODE_IDS["reshape"]).tolist():
        if len(inlined.reads[op]) == 1:
            (read,) = inlined.reads[op]
            pair = layouts.choose_reshape(inlined.node[read], inlined.node[op])
            wanted[ops.use_starts[op]], fixed[op] = pair
    forwards = np.zeros(len(ops.node), bool)
    forwards[:count] = find_forwarding(graph, ops.node[:count])
    return ops._replace(
        device=device, fixed=fixed, wanted=wanted, only_reader=_find_readers(ops), forwards=forwards
    )


def _find_summed(ops: "Instructions", op: int) -> list[int]:
    """Return the dimensions of a dot's result that a reduction sums. Element-wise instructions may
    stand between them. Of several reductions, the first one counts."""
    waiting, seen = [op], {op}
    while waiting:
        one = waiting.pop(0)
        for use in ops.reading[ops.reader_starts[one] : ops.reader_starts[one + 1]].tolist():
            reader = int(ops.reader[use])
            if ops.opcodes[reader] == REDUCE and ops.rank[one] == ops.rank[op] > 1:
                return [int(axis) for axis in ops.dimensions[reader] if axis >= 0]
            if reader not in seen and IS_ELEMENTWISE[ops.opcodes[reader]]:
                waiting.append(reader)
                seen.add(reader)
    return []


def _find_readers(ops: "Instructions") -> np.ndarray:
    """Return the field `only_reader` of Instructions; custom calls do not count as readers."""
    found = np.full(len(ops.node), NONE)
    is_passing = np.isin(ops.opcodes, PASSING)
    for op in range(len(ops.node)):
        uses = ops.reading[ops.reader_starts[op] : ops.reader_starts[op + 1]]
        readers = np.unique(ops.reader[uses])
        readers = readers[ops.is_programs[readers]]
        if len(readers) == 1 and is_passing[readers[0]]:
            found[op] = readers[0]
    return found
